#!/bin/sh
# Puts Chiffon on this host and takes it away again: the table in docs/install.md says what lies where, and a test
# compares the two. Called by `make install` and `make uninstall` with BIN, PREFIX, SYSCONFDIR and DESTDIR.
set -eu

bin=${BIN:-bin} prefix=${PREFIX:-/usr/local} sysconf=${SYSCONFDIR:-/etc} dest=${DESTDIR:-}
here=$(dirname "$0")
units="$prefix/lib/systemd/system"
state=/var/lib/chiffon

say() { printf '%s\n' "$*"; }

# live says whether this host itself is meant, rather than a package's staging folder.
live() { [ -z "$dest" ] && [ "$(id -u)" = 0 ]; }

reload() {
	if live && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
}

install_all() {
	for program in orchestrator agentrunner; do
		if [ ! -x "$bin/$program" ]; then
			say "install: $bin/$program is not there: run 'make build' first (as yourself, not as root)" >&2
			exit 1
		fi
	done
	install -d "$dest$prefix/bin" "$dest$units" "$dest$sysconf/chiffon" "$dest$sysconf/chiffon/work.d" \
		"$dest$sysconf/chiffon/playbooks" "$dest$sysconf/chiffon/services"
	for program in orchestrator agentrunner; do
		install -m 0755 "$bin/$program" "$dest$prefix/bin/$program"
		unit="$dest$units/chiffon-$program.service"
		sed -e "s|/usr/local/bin/|$prefix/bin/|" -e "s|/etc/chiffon/|$sysconf/chiffon/|" \
			"$here/systemd/chiffon-$program.service" >"$unit"
		chmod 0644 "$unit"
		# Settings are the operator's from the first moment: an existing file is never written over.
		example="$here/systemd/$program.env" settings="$dest$sysconf/chiffon/$program.env"
		if [ -e "$settings" ]; then
			say "kept   $settings"
		else
			install -m 0640 "$example" "$settings"
		fi
	done
	if live && ! getent passwd chiffon >/dev/null; then
		useradd --system --user-group --home-dir "$state" --no-create-home --shell /usr/sbin/nologin \
			--comment 'Chiffon orchestrator' chiffon
		say "made   user chiffon"
	fi
	reload
	say "installed below $dest$prefix and $dest$sysconf/chiffon. Next:"
	say "  systemctl enable --now chiffon-orchestrator chiffon-agentrunner"
	say "  sudo orchestrator doctor"
}

uninstall_all() {
	if live && [ -d /run/systemd/system ]; then
		systemctl disable --now chiffon-agentrunner chiffon-orchestrator 2>/dev/null || :
	fi
	for program in orchestrator agentrunner; do
		rm -f "$dest$prefix/bin/$program" "$dest$units/chiffon-$program.service"
		settings="$dest$sysconf/chiffon/$program.env"
		if [ -e "$settings" ]; then
			if cmp -s "$here/systemd/$program.env" "$settings"; then
				rm -f "$settings"
			else
				say "kept   $settings (it was changed)"
			fi
		fi
	done
	for folder in "$sysconf/chiffon/work.d" "$sysconf/chiffon/playbooks" "$sysconf/chiffon/services" "$sysconf/chiffon"; do
		if [ -d "$dest$folder" ] && ! rmdir "$dest$folder" 2>/dev/null; then
			say "kept   $dest$folder (it is not empty)"
		fi
	done
	reload
	say "kept   $dest$state: tasks, logs and credentials. To forget them: rm -r $dest$state"
	if live && getent passwd chiffon >/dev/null; then
		say "kept   user chiffon, who owns them. To forget it: userdel chiffon"
	fi
}

case ${1:-} in
install) install_all ;;
uninstall) uninstall_all ;;
*)
	say "usage: $0 install|uninstall" >&2
	exit 1
	;;
esac

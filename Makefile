# Chiffon. `make help` lists the targets; `make demo` and `make test` need Go and make and nothing else.

PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR    ?=
BIN        ?= bin
ARGS       ?=
FUZZTIME   ?= 20000x
FAULTS     ?= 300

# The version is what git says of the tree, and "devel" where there is no git or no history.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# Expanded only by the targets that use it: go says 0 when it finds no C compiler, and the race detector needs one.
RACE     = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

.DEFAULT_GOAL := help
.PHONY: help build demo test check fuzz e2e chaos bench install uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## build both programs into bin/
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X chiffon/pkg/build.version=$(VERSION)' -o $(BIN)/ ./orchestrator ./agentrunner

# make itself ends with 2 whatever went wrong; the exit code of the demo stands in what it prints ("Error 3").
demo: build ## see it work: broker, orchestrator, runner and one real task, until Ctrl-C (ARGS=--once: end by itself)
	@$(BIN)/orchestrator demo $(ARGS)

test: ## run all tests
	go test $(RACE) -timeout 15m ./...

check: ## everything a change must pass: format, vet, fixes, go.mod, staticcheck, tests, a little fuzzing
	@echo '--- gofmt'; out=$$(gofmt -l .) && test -z "$$out" || { echo "not formatted, run gofmt -w:" $$out; exit 1; }
	go vet -tags e2e,chaos,cut ./...
	go fix -diff ./...
	go mod tidy -diff
	go tool staticcheck -tags e2e,chaos,cut ./...
	go test -race -timeout 20m ./...
	@$(MAKE) --no-print-directory fuzz

fuzz: ## run each fuzz target for FUZZTIME (20000x)
	@list=$$(go test -list '^Fuzz' ./...) || { echo "$$list"; exit 1; }; \
	echo "$$list" | awk '/^Fuzz/ { f[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, f[i]; n = 0 }' | \
	while read -r pkg name; do \
		echo "go test -fuzz ^$$name\$$ -fuzztime $(FUZZTIME) $$pkg"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x "$$pkg" || exit 1; \
	done

e2e: build ## the end-to-end suite: real processes, a real broker, real Ansible
	go test -tags e2e $(RACE) -count=1 -v -timeout 20m ./e2e/...

# Short runs look for races too.
chaos: ## break everything at random, FAULTS times (300), and see that nothing is lost or done twice (SEED=… repeats a run)
	@mkdir -p $(BIN)
	FAULTS=$(FAULTS) SEED=$(SEED) WITHOUT='$(WITHOUT)' RACE=$$(test $(FAULTS) -gt 1000 || echo $(RACE)) \
		CUTS=$(CUTS) go test -tags chaos -count=1 -v -parallel 8 -timeout 12h -artifacts -outputdir $(BIN) ./e2e/chaos/

bench: ## run the benchmarks
	go test -run '^$$' -bench . -benchmem ./...

install: ## install programs, units, settings (run `make build` first; PREFIX, SYSCONFDIR, DESTDIR)
	@BIN='$(BIN)' PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' DESTDIR='$(DESTDIR)' sh deploy/install.sh install

uninstall: ## take away what install put there; state stays
	@BIN='$(BIN)' PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' DESTDIR='$(DESTDIR)' sh deploy/install.sh uninstall

clean: ## remove what was built
	rm -rf $(BIN)

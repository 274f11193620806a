//go:build chaos

package chaos

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A link joins a runner's own network namespace to the broker. Programs speak to a broker on loopback only, so a relay
// in the namespace listens there and speaks to one on the other side, over the link: what is cut is a cable, and
// nobody's connection is closed.
type link struct {
	namespace string
	near, far string // the two ends of the cable; near is here
	url       string // of the broker, in the namespace
	listener  net.Listener
}

// The relay is the test binary, told by these.
const (
	relayTo   = "CHAOS_RELAY_TO"
	relayPort = "CHAOS_RELAY_PORT"
)

// link lays a cable for runner i; nil where that is not allowed.
func (s *site) link(i int) *link {
	s.Helper()
	if os.Getuid() != 0 || !has("ip") || !has("nsenter") {
		if i == 0 {
			s.Log("left out: cut links (they need root, ip and nsenter)")
		}
		return nil
	}
	tag := fmt.Sprintf("%d-%d", os.Getpid()%100000, i)
	l := &link{namespace: "chiffon-" + tag, near: "cha" + tag, far: "chb" + tag}
	third := 100 + os.Getpid()%100
	here, there := fmt.Sprintf("10.%d.%d.1", third, i), fmt.Sprintf("10.%d.%d.2", third, i)
	for _, args := range []string{
		"netns add " + l.namespace,
		"link add " + l.near + " type veth peer name " + l.far + " netns " + l.namespace,
		"addr add " + here + "/30 dev " + l.near,
		"link set " + l.near + " up",
		"-n " + l.namespace + " addr add " + there + "/30 dev " + l.far,
		"-n " + l.namespace + " link set " + l.far + " up",
		"-n " + l.namespace + " link set lo up",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			l.remove()
			if i == 0 {
				s.Logf("left out: cut links (ip %s: %v: %s)", args, err, out)
			}
			return nil
		}
	}
	var err error
	if l.listener, err = net.Listen("tcp", here+":0"); err != nil {
		s.Fatal(err)
	}
	go forward(l.listener, strings.TrimPrefix(s.brokerURL, "nats://"))
	own, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	port := free(s)
	l.url = "nats://127.0.0.1:" + port
	s.relays = append(s.relays, s.process(fmt.Sprintf("relay-%d", i+1), append(l.enter(), own), with(
		relayTo+"="+l.listener.Addr().String(), relayPort+"="+port)))
	return l
}

func has(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// enter is the command that runs another one in the namespace, under the same process id.
func (l *link) enter() []string {
	path, err := exec.LookPath("nsenter")
	if err != nil {
		path = "nsenter"
	}
	return []string{path, "--net=" + filepath.Join("/run/netns", l.namespace)}
}

// set lays the cable or cuts it.
func (l *link) set(t testing.TB, up bool) {
	t.Helper()
	state := map[bool]string{true: "up", false: "down"}[up]
	if out, err := exec.Command("ip", "link", "set", l.near, state).CombinedOutput(); err != nil {
		t.Errorf("ip link set %s %s: %v: %s", l.near, state, err, out)
	}
}

func (l *link) remove() {
	if l == nil {
		return
	}
	if l.listener != nil {
		l.listener.Close()
	}
	_ = exec.Command("ip", "link", "del", l.near).Run()       // may be gone
	_ = exec.Command("ip", "netns", "del", l.namespace).Run() // likewise
}

// relay listens at an address and hands on to another, until the process ends.
func relay(listen, to string) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	forward(l, to)
}

func forward(l net.Listener, to string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			other, err := net.DialTimeout("tcp", to, 2*time.Second)
			if err != nil {
				return
			}
			defer other.Close()
			var wg sync.WaitGroup
			for _, pair := range [][2]net.Conn{{conn, other}, {other, conn}} {
				wg.Go(func() {
					_, _ = io.Copy(pair[0], pair[1]) // either end may break off
					pair[0].Close()
				})
			}
			wg.Wait()
		}()
	}
}

// smallDisk mounts a disk that is soon full on a directory; "" where that is not allowed.
func (s *site) smallDisk(dir string) string {
	if os.Getuid() != 0 {
		return ""
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=700"); err != nil {
		s.Logf("mount a small disk: %v", err)
		return ""
	}
	return dir
}

func (s *site) freeDisk() {
	if s.disk != "" {
		if err := syscall.Unmount(s.disk, syscall.MNT_DETACH); err != nil {
			s.Errorf("unmount %s: %v", s.disk, err)
		}
	}
}

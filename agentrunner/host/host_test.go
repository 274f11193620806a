package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLook(t *testing.T) {
	t.Parallel()
	r := New(t.Context()).Look()
	if r.CPUs < 1 || r.MemoryMB < 1 || r.MemoryFreeMB < 1 || r.MemoryFreeMB > r.MemoryMB {
		t.Errorf("Look() = %+v", r)
	}
	if room := Now(t.Context()); room.MemoryMB != r.MemoryMB {
		t.Errorf("Now() = %+v, want the memory of %+v", room, r)
	}
}

func TestGPUs(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "nvidia-smi")
	script := "#!/bin/sh\ncase \"$*\" in *memory.total,memory.free*) printf '8192, 512\\n8192, 8000\\n[N/A], [N/A]\\n' ;; *) exit 1 ;; esac\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if total, free := askGPUs(t.Context(), program); total != 16384 || free != 8512 {
		t.Errorf("askGPUs() = %d, %d, want 16384, 8512", total, free)
	}
	if total, free := askGPUs(t.Context(), filepath.Join(t.TempDir(), "missing")); total != 0 || free != 0 {
		t.Errorf("askGPUs() of no program = %d, %d", total, free)
	}
}

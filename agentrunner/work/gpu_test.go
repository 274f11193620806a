package work

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGPUMemory(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "nvidia-smi")
	script := "#!/bin/sh\ncase \"$*\" in *pid,used_memory*) printf '101, 512\\n102, 256\\n999, 8000\\n103, [N/A]\\n' ;; *) exit 1 ;; esac\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for want, pids := range map[int][]int{768: {101, 102, 103}, 0: {1}} {
		if got := gpuMemory(t.Context(), program, pids); got != want {
			t.Errorf("gpuMemory of %v = %d, want %d", pids, got, want)
		}
	}
}

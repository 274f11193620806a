package token

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"chiffon/pkg/disk"
)

// ReadFile reads a token from a file of its own, white space around it ignored. A file that others than its owner may
// read is refused: its token is no secret any more.
func ReadFile(path string) (Token, error) {
	f, err := os.Open(path)
	if err != nil {
		return Token{}, err // names the path
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Token{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Token{}, fmt.Errorf("%s can be read by others (mode %04o): run `chmod 600 %s`, and make a new token if others use this host",
			path, info.Mode().Perm(), path)
	}
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return Token{}, err
	}
	t, err := Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// WriteFile puts a token into a file that only its owner can read (0600). A crash leaves the old file or the new one.
func WriteFile(path string, t Token) error {
	if t.IsZero() {
		return errors.New("there is no token to write")
	}
	return disk.Replace(path, []byte(t.Reveal()+"\n"))
}

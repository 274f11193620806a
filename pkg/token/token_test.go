package token

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const secret = "0123456789abcdefFEDCBA9876543210"

func TestNothingPrintsIt(t *testing.T) {
	t.Parallel()
	tok, err := Parse(secret)
	if err != nil {
		t.Fatal(err)
	}
	private := struct{ t Token }{tok}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "token", tok, "all", private)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "token", tok, "all", private)
	asJSON, err := json.Marshal(map[string]any{"t": tok, "p": &tok, "s": private})
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	all.WriteString(log.String() + string(asJSON) + tok.String() + tok.GoString())
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
		fmt.Fprintf(&all, verb+verb+verb+verb, tok, &tok, private, []Token{tok})
	}
	for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret)} {
		if strings.Contains(all.String(), form) {
			t.Errorf("the secret is in %s", all.String())
		}
	}
	if tok.Reveal() != secret {
		t.Errorf("Reveal() = %q", tok.Reveal())
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{
		secret: true, secret[1:]: false, secret + "0": false, "": false, secret[1:] + " ": false, secret[1:] + "\n": false,
		secret[2:] + "ö": false, secret[1:] + "~": true,
	} {
		tok, err := Parse(in)
		if (err == nil) != ok || ok && tok.Reveal() != in {
			t.Errorf("Parse(%q) = %q, %v", in, tok.Reveal(), err)
		}
		if err != nil && len(in) > 9 && strings.Contains(err.Error(), in[:9]) {
			t.Errorf("the error %q tells the secret", err)
		}
	}
	for in, ok := range map[string]bool{
		"Bearer " + secret: true, "bearer  " + secret: true, secret: false, "Basic " + secret: false, "Bearer": false, "": false, "Bearer ": false,
	} {
		if tok, err := FromHeader(in); (err == nil) != ok || ok && tok.Reveal() != secret {
			t.Errorf("FromHeader(%q) = %q, %v", in, tok.Reveal(), err)
		}
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	a, b := New(), New()
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(a.Reveal()) || a == b {
		t.Errorf("New() = %q, then %q", a.Reveal(), b.Reveal())
	}
	same, _ := Parse(a.Reveal())
	if !a.Matches(a.Hash()) || a.Matches(b.Hash()) || a != same || a.Matches("") || len(a.Hash()) != 64 {
		t.Error("a token matches its own hash and no other")
	}
	var none Token
	if !none.IsZero() || none.Matches(none.Hash()) || none.Reveal() != "" {
		t.Error("no token matches something")
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	for range 2 { // the second time over the first
		tok := New()
		if err := WriteFile(path, tok); err != nil {
			t.Fatal(err)
		}
		if back, err := ReadFile(path); err != nil || back != tok {
			t.Errorf("ReadFile = %q, %v, want %q", back.Reveal(), err, tok.Reveal())
		}
	}
	if all, _ := os.ReadDir(filepath.Dir(path)); len(all) != 1 {
		t.Errorf("left behind: %v", all)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
			t.Errorf("ReadFile with mode %04o = %v, want a cure", mode, err)
		}
	}
	if err := os.WriteFile(path, []byte("a secret that is no token"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "secret") {
		t.Errorf("ReadFile(no token) = %v, want the path and not the content", err)
	}
	if err := WriteFile(path, Token{}); err == nil {
		t.Error("WriteFile(no token) = nil")
	}
	if err := WriteFile(filepath.Join(path, "x"), New()); err == nil {
		t.Error("WriteFile below a file = nil")
	}
}

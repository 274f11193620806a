// Package token makes, keeps and compares bearer tokens, in a type that can't be printed by accident.
// It does not know what a token is good for.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unique"
)

// Length is how many characters a token has.
const Length = 32

// A Token is a secret. The zero value is none, and matches nothing. Nothing prints it, not even as a private field of
// what is printed; Reveal is the only way to the secret. Tokens may be compared with ==.
type Token struct{ secret unique.Handle[string] }

const shown = "[token]"

// New makes a random token: 32 lower-case hex digits.
func New() Token {
	var b [Length / 2]byte
	rand.Read(b[:]) // never fails
	return Token{unique.Make(hex.EncodeToString(b[:]))}
}

// Parse takes exactly 32 printable ASCII characters, without white space. Its error does not hold them.
func Parse(s string) (Token, error) {
	if len(s) != Length {
		return Token{}, fmt.Errorf("a token has %d characters, not %d", Length, len(s))
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return Token{}, errors.New("a token is printable ASCII without spaces")
		}
	}
	return Token{unique.Make(s)}, nil
}

// FromHeader reads the value of an Authorization header, "Bearer <token>".
func FromHeader(value string) (Token, error) {
	scheme, secret, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return Token{}, errors.New(`no bearer token: the Authorization header must be "Bearer <token>"`)
	}
	return Parse(strings.Trim(secret, " "))
}

// IsZero reports whether there is no token.
func (t Token) IsZero() bool { return t == Token{} }

// Reveal is the secret itself; empty when there is none.
func (t Token) Reveal() string {
	if t.IsZero() {
		return ""
	}
	return t.secret.Value()
}

// Hash is what to store instead of the token: SHA-256 in hex. Random tokens need no salt.
func (t Token) Hash() string {
	sum := sha256.Sum256([]byte(t.Reveal()))
	return hex.EncodeToString(sum[:])
}

// Matches reports whether hash is the Hash of the token, in a time that tells nothing.
func (t Token) Matches(hash string) bool {
	return !t.IsZero() && subtle.ConstantTimeCompare([]byte(t.Hash()), []byte(hash)) == 1
}

// UnmarshalText is Parse, for configuration and JSON.
func (t *Token) UnmarshalText(text []byte) (err error) {
	*t, err = Parse(string(text))
	return err
}

// String is "[token]", and so are all other forms.
func (Token) String() string { return shown }

// GoString is "[token]".
func (Token) GoString() string { return shown }

// Format writes "[token]" whatever the verb.
func (Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, shown) }

// LogValue is "[token]".
func (Token) LogValue() slog.Value { return slog.StringValue(shown) }

// MarshalJSON is "[token]".
func (Token) MarshalJSON() ([]byte, error) { return []byte(`"` + shown + `"`), nil }

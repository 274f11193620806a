package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"chiffon/pkg/disk"
	"chiffon/pkg/token"
)

// credentialFile holds, in the state directory, how the command line of this host gets in.
const credentialFile = "admin.json"

// credential is the token of the admin and where it is good for.
func credential(state, url string) (token.Token, error) {
	path := filepath.Join(state, credentialFile)
	tok, err := readCredential(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		tok = token.New()
	case err != nil:
		return token.Token{}, err
	}
	data, err := json.Marshal(map[string]string{"url": url, "token": tok.Reveal()})
	if err == nil {
		err = disk.Replace(path, append(data, '\n'))
	}
	if err != nil {
		return token.Token{}, fmt.Errorf("write the credential: %w", err)
	}
	return tok, nil
}

func readCredential(path string) (token.Token, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return token.Token{}, err
	}
	var c struct {
		Token token.Token `json:"token"`
	}
	err = json.Unmarshal(data, &c)
	if err == nil && c.Token.IsZero() {
		err = errors.New("it holds no token")
	}
	if err != nil {
		return token.Token{}, fmt.Errorf("credential %s: %w: remove it and a new one is made at the next start", path, err)
	}
	return c.Token, nil
}

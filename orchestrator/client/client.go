// Package client is the HTTP API of the orchestrator as Go calls: submit, read, cancel, follow.
// It does not know who calls it: it prints nothing, reads no flags and never ends the program.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"chiffon/pkg/token"
)

// maxAnswer bounds what one answer may weigh: a page of 500 tasks stays far below.
const maxAnswer = 64 << 20

// worthwhile is the longest Retry-After that a call waits for; beyond it the caller is told.
const worthwhile = 5 * time.Second

// A Client talks to one orchestrator. Safe for concurrent use.
type Client struct {
	base  *url.URL
	token token.Token
	http  *http.Client

	retries   int           // repetitions of a call that the server could not take
	firstWait time.Duration // before the second try
	maxWait   time.Duration // between two tries
	idle      time.Duration // silence after which a stream of events counts as lost

	notice func(text string) // takes what a person should know while a call goes on; may be nil
	warned atomic.Bool       // the latest answer came with a warning
}

// New is a client of the orchestrator at address ("http://127.0.0.1:8422") that shows credential with every call; the
// zero Token shows none. The error says what is wrong with the address.
func New(address string, credential token.Token) (*Client, error) {
	base, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	return &Client{
		base:  base,
		token: credential,
		http: &http.Client{
			Transport: http.DefaultTransport,
			// a redirect would carry the token to a place nobody named
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		retries:   4,
		firstWait: 250 * time.Millisecond,
		maxWait:   5 * time.Second,
		idle:      45 * time.Second,
	}, nil
}

// Notice has a function told, in words for people, why a call is tried again, and that an answer may be old; each once
// while it lasts. To be called before any other method.
func (c *Client) Notice(tell func(text string)) { c.notice = tell }

func (c *Client) inform(text string) {
	if c.notice != nil {
		c.notice(text)
	}
}

// URL is where the orchestrator is.
func (c *Client) URL() string { return c.base.String() }

func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is not the address of an orchestrator: want http://HOST:PORT or https://HOST[:PORT]", address)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// An Unreachable error means that no answer came: nobody listens there, or the connection broke. The call may or may not
// have been carried out; every call of this package may be repeated.
type Unreachable struct {
	URL   string
	Err   error
	Maybe string // what is to be said if the call may have been carried out
}

func (e *Unreachable) Error() string {
	return withMaybe(fmt.Sprintf("no answer from %s: %v", e.URL, reason(e.Err)), e.Maybe)
}
func (e *Unreachable) Unwrap() error { return e.Err }

// reason leaves out what the URL says already.
func reason(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// call is one request: into (a pointer, or nil) receives the JSON of a 2xx answer.
type call struct {
	method string
	path   string
	query  url.Values
	header http.Header
	body   any
	into   any
	repeat string // what holds of it while nobody knows whether it was carried out, for people
}

// do makes a call, again while the server says that it can't yet (503 and 429 with Retry-After) or the connection broke
// underway: each call of this API may be repeated. Errors are *Problem, *Unreachable or the context's.
func (c *Client) do(ctx context.Context, k call) (status int, err error) {
	var body []byte
	if k.body != nil {
		if body, err = json.Marshal(k.body); err != nil {
			return 0, fmt.Errorf("encode the request: %w", err)
		}
	}
	wait, maybe := c.firstWait, false
	for try := 0; ; try++ {
		status, err = c.once(ctx, k, body)
		maybe = maybe || k.method != http.MethodGet && underway(err)
		pause, again := c.again(err, wait)
		if err == nil || !again || try >= c.retries {
			if maybe {
				unsure(err, k.repeat)
			}
			return status, err
		}
		if try == 0 {
			reason := err.Error()
			if i := strings.IndexAny(reason, ";\n"); i >= 0 {
				reason = reason[:i]
			}
			c.inform(reason + "; trying again")
		}
		if err := sleep(ctx, pause); err != nil {
			return 0, err
		}
		wait = min(2*wait, c.maxWait)
	}
}

// underway reports whether a call that failed so may have been carried out.
func underway(err error) bool {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Context["maybe_done"] == true
	}
	u, ok := errors.AsType[*Unreachable](err)
	return ok && !dialled(u)
}

// dialled reports whether nobody was there to be told of the call.
func dialled(u *Unreachable) bool {
	op, ok := errors.AsType[*net.OpError](u.Err)
	return ok && op.Op == "dial"
}

// unsure has an error say that a try of the call may have been carried out, where its last one was not: an answer that
// is no refusal tells what holds.
func unsure(err error, repeat string) {
	repeat = cmp.Or(repeat, "to repeat it is safe")
	const text = "it is not known whether a try of this was carried out: "
	if p, ok := errors.AsType[*Problem](err); ok && (p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests) {
		p.Maybe = text + repeat
	}
	if u, ok := errors.AsType[*Unreachable](err); ok {
		u.Maybe = text + repeat
	}
}

func withMaybe(text, maybe string) string {
	if maybe == "" {
		return text
	}
	return text + "\n  " + maybe
}

// named is the path of one thing below a collection. An id that could be none is refused here: it must not lead to another path.
func named(collection, id string) (string, error) {
	ok := id != ""
	for _, c := range id {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok {
		return "", fmt.Errorf("%q is not the id of anything", id)
	}
	return "/v1/" + collection + "/" + id, nil
}

// again says whether a call is worth repeating, and when.
func (c *Client) again(err error, wait time.Duration) (time.Duration, bool) {
	if p, ok := errors.AsType[*Problem](err); ok {
		return min(max(p.RetryAfter, wait), c.maxWait), p.RetryAfter > 0 && p.RetryAfter <= worthwhile
	}
	if u, ok := errors.AsType[*Unreachable](err); ok {
		return wait, !dialled(u) // nobody there: say so at once
	}
	return 0, false
}

func (c *Client) once(ctx context.Context, k call, body []byte) (int, error) {
	res, err := c.send(ctx, k, body)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return 0, c.broken(ctx, err)
	}
	if len(data) > maxAnswer {
		return 0, fmt.Errorf("the answer of %s to %s is larger than %d MiB", c.URL(), k.path, maxAnswer>>20)
	}
	if k.into != nil {
		if err := json.Unmarshal(data, k.into); err != nil {
			return 0, fmt.Errorf("%s does not answer like an orchestrator (%s): %w", c.URL(), k.path, err)
		}
	}
	return res.StatusCode, nil
}

// send returns a 2xx answer with its body open, or an error.
func (c *Client) send(ctx context.Context, k call, body []byte) (*http.Response, error) {
	u := *c.base
	u.Path += k.path
	u.RawQuery = k.query.Encode()
	req, err := http.NewRequestWithContext(ctx, k.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	maps.Copy(req.Header, k.header)
	if secret := c.token.Reveal(); secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		return nil, readProblem(res)
	}
	c.warn(res.Header.Get("Warning"))
	return res, nil
}

// warn tells what an answer's Warning header says, unless the answer before it had one too.
func (c *Client) warn(header string) {
	if c.warned.Swap(header != "") || header == "" {
		return
	}
	_, text, _ := strings.Cut(header, `"`)
	if text, err := strconv.Unquote(`"` + text); err == nil {
		c.inform(text)
	}
}

// broken is the error of a connection that failed: the caller's own end, if that is why.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &Unreachable{URL: c.URL(), Err: err}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func seconds(header string) time.Duration {
	n, err := strconv.Atoi(header)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}

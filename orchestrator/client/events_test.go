package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/pkg/token"
)

const secret = "0123456789abcdef0123456789abcdef"

// quick is a client of serve that waits for nothing long.
func quick(t *testing.T, serve http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	credential, err := token.Parse(secret)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(server.URL, credential)
	if err != nil {
		t.Fatal(err)
	}
	c.firstWait, c.maxWait, c.idle = time.Millisecond, 2*time.Millisecond, time.Minute
	return c
}

// log is what the events of a task look like on the wire: c comes twice, by another id.
var log = []string{
	"id: 1.0\nevent: entry\ndata: {\"id\":\"1.0\",\"kind\":\"submitted\",\"message\":{\"message_id\":\"a\"}}\n\n",
	": ping\n\n",
	"id: 2.1\r\nevent: status\r\ndata: {\"id\":\"2.1\",\"kind\":\"status\",\r\ndata: \"message\":{\"message_id\":\"b\"}}\r\n\r\n",
	"id: 2.2\nevent: status\ndata: {\"id\":\"2.2\",\"kind\":\"status\",\"message\":{\"message_id\":\"c\"}}\n\n",
	"id: 2.3\nevent: status\ndata: {\"id\":\"2.3\",\"kind\":\"status\",\"message\":{\"message_id\":\"c\"}}\n\n",
	"id: 2.4\nevent: gap\ndata: {\"id\":\"2.4\",\"kind\":\"gap\",\"missing\":3}\n\n",
	"id: 3.4\nevent: end\ndata: {\"id\":\"3.4\",\"kind\":\"end\",\"task\":{\"task_id\":\"t\",\"state\":\"succeeded\",\"newer\":1}}\n\n",
}

// after is what is left of the log for a reader that has seen id.
func after(id string) []string {
	if id == "" {
		return log
	}
	return log[1+slices.IndexFunc(log, func(s string) bool { return strings.HasPrefix(s, "id: "+id) }):]
}

func kinds(t *testing.T, c *Client, q EventQuery) (list string, last Event, err error) {
	t.Helper()
	for e, err := range c.Events(t.Context(), "t", q) {
		if err != nil {
			return list, last, err
		}
		last = e
		list += e.Kind + " "
	}
	return list, last, nil
}

func TestEventsAreTakenUpWhereTheyBroke(t *testing.T) {
	t.Parallel()
	breaks := map[string]func(http.ResponseWriter){
		"connection closed": func(w http.ResponseWriter) {},
		"connection cut": func(w http.ResponseWriter) {
			fmt.Fprint(w, "id: 9.9\ndata: {\"half\":")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
	}
	for name, breakIt := range breaks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connections := 0
			c := quick(t, func(w http.ResponseWriter, r *http.Request) {
				connections++
				if connections == 3 { // a restart in between
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				for i, text := range after(r.Header.Get("Last-Event-ID")) {
					if i == 2 && connections < 6 {
						breakIt(w)
						return
					}
					fmt.Fprint(w, text)
				}
			})
			lost := 0
			got, end, err := kinds(t, c, EventQuery{Follow: true, Lost: func(error, time.Duration) { lost++ }})
			if want := "submitted status status gap end "; got != want || err != nil {
				t.Errorf("events = %q, %v, want %q", got, err, want)
			}
			if task, ok := end.Ended(); !ok || task.State != "succeeded" || !strings.Contains(string(task.JSON), `"newer":1`) {
				t.Errorf("end = %+v, %v, want the task as it came", task, ok)
			}
			if lost != connections-1 {
				t.Errorf("told of %d losses, want %d", lost, connections-1)
			}
		})
	}
}

func TestEventsThatStopAreLost(t *testing.T) {
	t.Parallel()
	connections := 0
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		connections++
		for _, text := range after(r.Header.Get("Last-Event-ID")) {
			fmt.Fprint(w, text)
			if connections == 1 {
				w.(http.Flusher).Flush()
				<-r.Context().Done() // a connection that nobody closes
				return
			}
		}
	})
	c.idle = 30 * time.Millisecond
	got, _, err := kinds(t, c, EventQuery{Follow: true})
	if want := "submitted status status gap end "; got != want || err != nil || connections != 2 {
		t.Errorf("events = %q, %v over %d connections, want %q over 2", got, err, connections, want)
	}
}

// Who has just submitted a task meets a broker that is away for some seconds.
func TestEventsOfServerThatCannotYet(t *testing.T) {
	t.Parallel()
	asked := 0
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked < 20 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, strings.Join(log, ""))
	})
	got, _, err := kinds(t, c, EventQuery{Follow: true})
	if want := "submitted status status gap end "; got != want || err != nil {
		t.Errorf("events = %q, %v, want %q", got, err, want)
	}
	asked = -100
	if _, _, err := kinds(t, c, EventQuery{}); err == nil {
		t.Error("who does not follow waits for ever")
	}
}

func TestEventsWithoutFollowingEnd(t *testing.T) {
	t.Parallel()
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("follow") != "false" {
			t.Errorf("follow = %q", r.FormValue("follow"))
		}
		fmt.Fprint(w, log[0], log[2])
	})
	if got, _, err := kinds(t, c, EventQuery{}); got != "submitted status " || err != nil {
		t.Errorf("events = %q, %v", got, err)
	}
}

func TestEventsThatCannotBeHad(t *testing.T) {
	t.Parallel()
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"detail":"there is no task t"}`)
	})
	_, _, err := kinds(t, c, EventQuery{Follow: true})
	if p, ok := errors.AsType[*Problem](err); !ok || p.Status != 404 {
		t.Errorf("no such task: %v, want a Problem with 404", err)
	}
	if _, _, err := kinds(t, gone(t), EventQuery{Follow: true}); !unreachable(err) {
		t.Errorf("nobody there: %v, want Unreachable", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	for _, err := range c.Events(ctx, "t", EventQuery{Follow: true}) {
		if err == nil || err.Error() != "enough" {
			t.Errorf("after the caller's end: %v, want its cause", err)
		}
	}
}

// gone is a client of a server that was.
func gone(t *testing.T) *Client {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c, err := New(server.URL, token.Token{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func unreachable(err error) bool {
	_, ok := errors.AsType[*Unreachable](err)
	return ok
}

func TestRecentForgets(t *testing.T) {
	t.Parallel()
	var r recent
	id := func(n int) []byte { return fmt.Appendf(nil, `{"message_id":"%d"}`, n) }
	for n := range 3 * remembered {
		if r.before(id(n)) || !r.before(id(n)) {
			t.Fatalf("message %d is new once", n)
		}
	}
	if len(r.ids) != remembered || len(r.ring) != remembered || r.before(id(0)) {
		t.Errorf("remembers %d, want the last %d", len(r.ids), remembered)
	}
}

func FuzzSSE(f *testing.F) {
	f.Add([]byte(strings.Join(log, "")))
	f.Add([]byte("id\ndata\n\ndata:\r\n\r\n:\n\nid: 1"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		s := newSSE(strings.NewReader(string(stream)))
		for {
			fr, err := s.next(func() {})
			if err != nil {
				return
			}
			if len(fr.data) > len(stream) || strings.ContainsAny(fr.id, "\n") {
				t.Errorf("frame %+v holds more than the stream", fr)
			}
		}
	})
}

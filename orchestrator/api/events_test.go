package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// began has an agent start a task and say one thing, as far as a reader is concerned.
func (s *site) began(id subject.TaskID) {
	s.Helper()
	st := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(), message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	st.Custom = message.Custom{AgentID: "a", Chiffon: &message.Extension{Attempt: 1, Attempts: 1}}
	d, err := tasklog.Write(tasklog.Started, id, subject.Event(id, "a"), st)
	s.append(id, d, err)
	st.MessageID = message.NewUUID()
	data, err := st.Encode()
	if err != nil {
		s.Fatal(err)
	}
	r, err := s.Send(subject.Status(id, "a"), data)
	if err == nil {
		err = r.Wait(s.Context())
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) ended(id subject.TaskID) {
	s.Helper()
	m := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(), message.WorkResult{TaskID: id, Status: message.ResultSuccess})
	m.Custom = message.Custom{AgentID: "a", Chiffon: &message.Extension{StatusCount: 1}}
	d, err := tasklog.Write(tasklog.Succeeded, id, subject.Event(id, "a"), m)
	s.append(id, d, err)
}

func (s *site) append(id subject.TaskID, d tasklog.Draft, err error) {
	s.Helper()
	tail, err2 := s.End(s.Context(), subject.TasksStream, subject.Task(id))
	if err == nil {
		err = err2
	}
	if err == nil {
		_, err = s.Append(s.Context(), d.At(tail, 1, 1))
	}
	if err != nil {
		s.Fatal(err)
	}
}

// stream reads events until there are n or no more, as "id event".
func (s *site) stream(r request, n int) (ids, names []string) {
	s.Helper()
	res := s.send(r)
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		s.Fatalf("GET %s = %s %v", r.path, res.Status, res.Header)
	}
	text := make([]byte, 0, 64<<10)
	buf := make([]byte, 4096)
	for strings.Count(string(text), "\n\n") < n {
		k, err := res.Body.Read(buf)
		text = append(text, buf[:k]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			s.Fatal(err)
		}
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			ids = append(ids, strings.TrimSpace(id))
		}
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return ids, names
}

func TestEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.do(post(good)).task.TaskID
	path := "/v1/tasks/" + id + "/events"
	if _, got := s.stream(request{path: path}, 99); strings.Join(got, " ") != "entry" {
		t.Errorf("events now = %v, want the one entry, and the end of the answer", got)
	}
	s.began(subject.TaskID(id))
	ids, got := s.stream(request{path: path + "?follow=true"}, 3)
	if strings.Join(got, " ") != "entry entry status" {
		t.Fatalf("events so far = %v", got)
	}
	s.ended(subject.TaskID(id))
	_, got = s.stream(request{path: path + "?follow=true", header: map[string]string{"Last-Event-ID": ids[1]}}, 99)
	if strings.Join(got, " ") != "status entry end" {
		t.Errorf("events behind %s = %v, want status entry end, and the end of the answer", ids[1], got)
	}
	prefix := "/v1/tasks/" + id[:10] + "/events?follow=true"
	if _, got = s.stream(request{path: prefix}, 99); strings.Join(got, " ") != "entry entry status entry end" {
		t.Errorf("all events = %v", got)
	}
}

// A server that stops lets its followers go, and they come back with their last id.
func TestEventsEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.do(post(good)).task.TaskID
	res := s.send(request{path: "/v1/tasks/" + id + "/events?follow=true"})
	defer res.Body.Close()
	close(s.stopping)
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Errorf("the stream breaks: %v", err)
	}
}

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/orchestrator/view"
	"chiffon/pkg/build"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

const (
	secret = "0123456789abcdef0123456789abcdef"
	trace  = "7b2e4c90-1111-4222-8333-444455556666"
	reqID  = "11111111-2222-4333-8444-555566667777"
)

// start is when everything in these tests begins; the command line runs an hour later.
var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// A story is a task of the fake server: as it stands, and the events that it has had.
type story struct {
	view.Task
	events []view.Event
	seq    int
}

func newStory(id, workType string) *story {
	s := &story{Task: view.Task{TaskID: id, State: view.Queued, AgentType: "infra", WorkType: workType, Priority: "normal",
		RequestID: reqID, TraceID: trace, SubmittedBy: "admin", SubmittedAt: start, Parameters: json.RawMessage(`{}`)}}
	s.add("submitted", 0, 0, message.New(subject.Orchestrator, "infra", trace, reqID,
		message.WorkRequest{TaskID: subject.TaskID(id), WorkType: workType, Parameters: s.Parameters}))
	return s
}

// add is an event so many seconds after the start.
func (s *story) add(kind string, after float64, attempt int, msg any) *view.Event {
	s.seq++
	e := view.Event{ID: fmt.Sprintf("%d.%d", 100+s.seq, s.seq), Kind: kind, Time: start.Add(time.Duration(after * float64(time.Second))), Attempt: attempt}
	if attempt > 0 {
		e.AgentID = "nas"
	}
	if msg != nil {
		data, err := json.Marshal(msg)
		if err != nil {
			panic(err)
		}
		e.Message = data
	}
	s.events = append(s.events, e)
	return &s.events[len(s.events)-1]
}

func (s *story) started(after float64, attempt int) *story {
	s.State, s.AgentID, s.Attempt, s.Attempts, s.StartedAt = view.Running, "nas", attempt, 4, new(start.Add(time.Duration(after*float64(time.Second))))
	s.add("started", after, attempt, fromAgent(message.WorkStatus{TaskID: subject.TaskID(s.TaskID), Status: message.StatusRunning}))
	return s
}

func (s *story) status(after float64, percent, step int, name, output string) *story {
	text, encoding := message.Text([]byte(output))
	s.ProgressPercent, s.Step = &percent, &view.Step{Number: step, Name: name}
	s.add("status", after, s.Attempt, fromAgent(message.WorkStatus{TaskID: subject.TaskID(s.TaskID), Status: message.StatusRunning,
		ProgressPercent: &percent, Step: &message.Step{Number: step, Name: name, Output: text, OutputEncoding: encoding}}))
	return s
}

func (s *story) failedAttempt(after float64, code fault.Code, text string, retry float64) *story {
	m := fromAgent(message.Failure{Code: code, Message: text})
	m.Custom.Chiffon = &message.Extension{RetryAt: new(start.Add(time.Duration(retry * float64(time.Second))))}
	s.add("attempt_failed", after, s.Attempt, m)
	return s
}

// ended gives the task its end, with the exit code of a command, or with an error when code is 5001 or more.
func (s *story) ended(after float64, state string, code int, output string) *story {
	s.State, s.EndedAt = state, new(start.Add(time.Duration(after*float64(time.Second))))
	s.Step, s.ProgressPercent = nil, nil
	if code >= 5001 {
		s.Error = &view.Fault{Code: code, Message: output}
	} else {
		words := map[string]string{view.Succeeded: "success", view.Failed: "failed", view.Cancelled: "cancelled"}
		s.Result = &view.Result{Status: words[state], ExitCode: code, Output: output, OutputBytes: int64(len(output)),
			ResourcesUsed: view.Resources{DurationSeconds: int(after), CPUTimeMS: 1200}}
	}
	s.add(state, after, s.Attempt, nil)
	s.add("end", after, 0, nil).Task = new(s.Task)
	return s
}

func fromAgent[P message.Payload](payload P) message.Message[P] {
	m := message.New("infra", subject.Orchestrator, trace, reqID, payload)
	m.Timestamp = message.Timestamp{Time: start}
	return m
}

// fake is a server that speaks the HTTP API, with stories for tasks.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	stories []*story
	agents  []view.Agent
	submit  func(body map[string]any) *story // what becomes of a submission
	bodies  []map[string]any
	looks   int      // at one agent
	keys    []string // of retries
	reason  string   // why a breaker is open, if not for the usual one
}

func newFake(t *testing.T, stories ...*story) *fake {
	f := &fake{stories: stories}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/tasks", f.post)
	mux.HandleFunc("GET /v1/tasks", f.list)
	mux.HandleFunc("GET /v1/tasks/{id}", f.one(func(w http.ResponseWriter, _ *http.Request, s *story) { answer(w, 200, s.Task) }))
	mux.HandleFunc("POST /v1/tasks/{id}/cancel", f.one(f.cancel))
	mux.HandleFunc("GET /v1/tasks/{id}/events", f.one(f.events))
	mux.HandleFunc("GET /v1/tasks/{id}/why", f.one(func(w http.ResponseWriter, _ *http.Request, s *story) {
		answer(w, 200, view.Why{ID: s.TaskID, State: s.State, Because: []string{"2 agents of type infra: nas is full\x1b[2J", "it is late"}, Next: "it begins"})
	}))
	mux.HandleFunc("GET /v1/tasks/{id}/history", f.one(f.history))
	mux.HandleFunc("POST /v1/tasks/{id}/retry", f.one(f.retry))
	mux.HandleFunc("GET /v1/agents/{id}/why", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, view.Why{ID: r.PathValue("id"), State: "silent", Because: []string{"it is silent for 3 m"}})
	})
	mux.HandleFunc("GET /v1/agents", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, map[string]any{"agents": f.agents}) })
	mux.HandleFunc("GET /v1/agents/{id}", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.looks++
		for _, a := range f.agents {
			if a.AgentID == r.PathValue("id") {
				answer(w, 200, a)
				return
			}
		}
		problem(w, 404, 0, "there is no agent "+r.PathValue("id"))
	})
	mux.HandleFunc("POST /v1/agents/{id}/{verb}", f.said)
	mux.HandleFunc("GET /v1/breakers", func(w http.ResponseWriter, _ *http.Request) {
		open := openBreaker()
		open.Reason = cmp.Or(f.reason, open.Reason)
		answer(w, 200, map[string]any{"breakers": []view.Breaker{open, {AgentID: "pi", State: "closed"}}})
	})
	mux.HandleFunc("POST /v1/breakers/{id}/reset", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") != "nas" {
			problem(w, 404, 0, "no agent "+r.PathValue("id")+" has registered")
			return
		}
		answer(w, 200, view.Breaker{AgentID: "nas", State: "closed", Since: new(start)})
	})
	mux.HandleFunc("GET /v1/checks", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"version": build.Version(), "checks": []view.Check{{Name: "broker", OK: true, Detail: "4 streams"},
			{Name: "agents", Detail: "none is ready", Cure: "start one with \"agentrunner run\""}}})
	})
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+secret {
			problem(w, 401, 5004, "the token is not valid")
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Server.Close)
	return f
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

func problem(w http.ResponseWriter, status, code int, detail string, errors ...map[string]string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail, "error_code": code, "errors": errors})
}

func (f *fake) post(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		problem(w, 400, 5003, err.Error())
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bodies = append(f.bodies, body)
	if f.submit == nil || body["work_type"] == "mine_coins" {
		problem(w, 422, 5006, "no agent of type infra offers "+fmt.Sprint(body["work_type"]), map[string]string{"location": "body.work_type", "message": "offered: run_command, survey_host"})
		return
	}
	s := f.submit(body)
	if slices.Contains(f.stories, s) {
		answer(w, 200, s.Task)
		return
	}
	f.stories = append(f.stories, s)
	first := s.Task
	first.State, first.Result, first.Error, first.EndedAt = view.Queued, nil, nil, nil
	answer(w, 202, first)
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, _ := strconv.Atoi(r.FormValue("cursor"))
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	tasks, next := []view.Task{}, ""
	for i, s := range f.stories {
		if i < from || r.Form["state"] != nil && !slices.Contains(r.Form["state"], s.State) {
			continue
		}
		if len(tasks) == limit {
			next = strconv.Itoa(i)
			break
		}
		tasks = append(tasks, s.Task)
	}
	answer(w, 200, map[string]any{"tasks": tasks, "next_cursor": next})
}

// one finds the story that a path names, by a unique prefix.
func (f *fake) one(serve func(http.ResponseWriter, *http.Request, *story)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var found []*story
		var names []map[string]string
		f.mu.Lock()
		for _, s := range f.stories {
			if strings.HasPrefix(s.TaskID, r.PathValue("id")) {
				found = append(found, s)
				names = append(names, map[string]string{"message": s.TaskID})
			}
		}
		f.mu.Unlock()
		switch len(found) {
		case 0:
			problem(w, 404, 0, "there is no task "+r.PathValue("id"))
		case 1:
			serve(w, r, found[0])
		default:
			problem(w, 409, 0, "several tasks begin with "+r.PathValue("id"), names...)
		}
	}
}

func openBreaker() view.Breaker {
	return view.Breaker{AgentID: "nas", State: "open", Failures: 5, Reason: "lost task 3f2a: its runner died" + evil,
		Since: new(start.Add(59 * time.Minute)), Until: new(start.Add(60*time.Minute + 30*time.Second))}
}

// said pauses, drains and resumes agents.
func (f *fake) said(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var body struct {
		ForSeconds int        `json:"for_seconds"`
		Until      *time.Time `json:"until"`
		Deadline   int        `json:"deadline_seconds"`
		Message    string     `json:"message"`
	}
	if verb := r.PathValue("verb"); verb != "resume" {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			problem(w, 400, 5003, err.Error())
			return
		}
	}
	for i := range f.agents {
		a := &f.agents[i]
		if a.AgentID != r.PathValue("id") {
			continue
		}
		a.PausedUntil, a.DrainUntil, a.Detail, a.State = nil, nil, "", "ready"
		switch r.PathValue("verb") {
		case "pause":
			if body.Until == nil {
				body.Until = new(start.Add(time.Hour + time.Duration(body.ForSeconds)*time.Second))
			}
			a.PausedUntil, a.State, a.Detail = body.Until, "paused", "paused until "+body.Until.UTC().Format("15:04")+": "+body.Message
		case "drain":
			a.DrainUntil, a.State, a.Detail = new(start.Add(time.Hour+time.Duration(body.Deadline)*time.Second)), "draining", "draining: "+body.Message
		}
		answer(w, 200, a)
		return
	}
	problem(w, 404, 0, "no agent "+r.PathValue("id")+" has registered")
}

func (f *fake) cancel(w http.ResponseWriter, r *http.Request, s *story) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		problem(w, 400, 5003, err.Error())
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bodies = append(f.bodies, body)
	if view.Ended(s.State) || s.State == view.Cancelling {
		answer(w, 200, s.Task)
		return
	}
	s.State, s.Cancel = view.Cancelling, &view.Cancel{By: "admin", At: new(start.Add(time.Hour))}
	answer(w, 202, s.Task)
}

// history has two pages, the second with what does not count.
func (f *fake) history(w http.ResponseWriter, r *http.Request, s *story) {
	h := view.History{TaskID: s.TaskID, NextCursor: "1.0", Events: []view.Event{
		{ID: "1.0", Kind: "submitted", Time: start, Writer: "orchestrator", Cause: "by admin, for any agent of type infra"},
		{ID: "2.0", Kind: "started", Time: start.Add(1500 * time.Millisecond), Writer: "nas", AgentID: "nas", Attempt: 1, Holder: "nas", Cause: "attempt 1 of 4"},
	}}
	if r.FormValue("cursor") == "1.0" {
		h = view.History{TaskID: s.TaskID, Events: []view.Event{
			{ID: "3.0", Kind: "succeeded", Time: start.Add(2 * time.Second), Writer: "pi\x1b[2J", AgentID: "pi", Attempt: 1, Holder: "nas", Cause: "exit code 0", Void: "its writer does not hold the task"},
			{ID: "0.9", Kind: "late", Time: start.Add(3 * time.Second), Writer: "pi", AgentID: "pi", Attempt: 1, Cause: "succeeded"},
		}}
	}
	answer(w, 200, h)
}

// retry knows one retry of each task, and another one for each key.
func (f *fake) retry(w http.ResponseWriter, r *http.Request, s *story) {
	if !view.Ended(s.State) {
		problem(w, 409, 0, "task "+s.TaskID+" has not ended, it is "+s.State)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = append(f.keys, key)
	if i := slices.IndexFunc(f.stories, func(o *story) bool { return o.RetryOf == s.TaskID }); i >= 0 && key == "" {
		answer(w, 200, f.stories[i].Task)
		return
	}
	fresh := survey(fmt.Sprintf("ae%06d-aaaa-8bbb-8ccc-000000000007", len(f.stories)))
	fresh.RetryOf = s.TaskID
	f.stories = append(f.stories, fresh)
	first := fresh.Task
	first.State, first.Result, first.EndedAt = view.Queued, nil, nil
	answer(w, 202, first)
}

// events sends what there is and, when followed, stays until the reader goes.
func (f *fake) events(w http.ResponseWriter, r *http.Request, s *story) {
	w.Header().Set("Content-Type", "text/event-stream")
	rest := s.events
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		rest = rest[1+slices.IndexFunc(rest, func(e view.Event) bool { return e.ID == last }):]
	}
	ended := false
	for _, e := range rest {
		data, _ := json.Marshal(e)
		fmt.Fprintf(w, "id: %s\nevent: entry\ndata: %s\n\n", e.ID, data)
		ended = e.Kind == "end"
	}
	w.(http.Flusher).Flush()
	if r.FormValue("follow") == "true" && !ended {
		<-r.Context().Done()
	}
}

package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

// story makes one task of every kind, and returns their ids by name.
func story(w *world) map[string]subject.TaskID {
	w.Helper()
	ids := map[string]subject.TaskID{
		"queued":  w.submit(order{labels: map[string]string{"env": "test", "site": "attic"}}),
		"running": w.submit(order{name: "second", labels: map[string]string{"env": "test"}}),
		"other":   w.submit(order{kind: "desktop", workType: "show", agent: "d"}),
		"failed":  w.submit(order{}),
		"done":    w.submit(order{}),
	}
	w.start(ids["running"], 1)
	w.start(ids["failed"], 1)
	w.fail(ids["failed"], 1)
	w.start(ids["done"], 1)
	w.fail(ids["done"], 1)
	w.requeue(ids["done"], 1)
	w.put(subject.Event(ids["done"], "mallory"), []byte("void"))
	w.start(ids["done"], 2)
	w.end(ids["done"], 2, 0)
	return ids
}

func TestFold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := story(w)
	w.folded(w.Ledger)
	for name, want := range map[string]string{
		"queued": view.Queued, "running": view.Running, "other": view.Queued, "failed": view.Queued, "done": view.Succeeded,
	} {
		task, ok := w.Get(ids[name])
		if got := task.View(); !ok || got.State != want {
			t.Errorf("%s is %s, want %s", name, got.State, want)
		}
	}
	done, _ := w.Get(ids["done"])
	if v := done.View(); v.Attempt != 2 || v.Attempts != 3 || v.Error != nil || *v.ProgressPercent != 100 || v.EndedAt == nil || v.AgentID != "a" ||
		len(done.Attempts) != 2 || done.State.Void != 1 || v.Parameters != nil {
		t.Errorf("what has ended is shown as %+v", v)
	}
	log, err := w.Task(t.Context(), ids["done"])
	if err != nil {
		t.Fatal(err)
	}
	if v := done.Describe(log); string(v.Parameters) != `{"a":1}` && string(v.Parameters) != `{"a": 1}` || v.Hints.MaxDurationSeconds != 60 ||
		v.Result == nil || v.Result.Output != "done" || v.Result.ResourcesUsed.CPUTimeMS != 3 {
		t.Errorf("Describe = %+v", v)
	}
	failed, _ := w.Get(ids["failed"])
	if v := failed.View(); v.Error == nil || v.Error.Code != 5002 || v.RetryAt == nil {
		t.Errorf("a failed attempt is shown as %+v", v)
	}
	open := w.Open(func(*ledger.Task) bool { return true })
	if len(open) != 4 || !slices.IsSortedFunc(open, func(a, b ledger.Task) int { return int(a.FirstSeq) - int(b.FirstSeq) }) {
		t.Errorf("Open has %d tasks, want 4, oldest first", len(open))
	}
	if busy := w.Busy(); busy["a"] != 1 {
		t.Errorf("Busy = %v, want one for a", busy)
	}
	if held := w.Held("a"); len(held) != 1 || held[0].State.Holder != "a" {
		t.Errorf("a holds %+v, want one", held)
	}
}

// Progress is what the holder says of its latest attempt; the phase is what the log says.
func TestProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{})
	w.start(id, 1)
	w.folded(w.Ledger)
	percent := func(want int) {
		t.Helper()
		for end := time.Now().Add(patience); ; {
			task, _ := w.Get(id)
			if task.Percent == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("progress is %d, want %d", task.Percent, want)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	percent(-1)
	w.status(id, 1, 30, 1)
	percent(30)
	w.status(id, 1, 20, 1) // late: it never goes back
	w.status(id, 9, 99, 1) // of no attempt there is
	w.status(id, 1, 40, 1)
	percent(40)
	w.fail(id, 1)
	w.requeue(id, 1)
	w.start(id, 2)
	percent(-1)
}

func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := time.Now()
	ids := story(w)
	w.folded(w.Ledger)
	for name, c := range map[string]struct {
		query ledger.Query
		want  []string // newest first
	}{
		"all":                {ledger.Query{}, []string{"any"}},
		"by state":           {ledger.Query{States: []string{view.Running}}, []string{"running"}},
		"by two states":      {ledger.Query{States: []string{view.Running, view.Succeeded}}, []string{"running", "done"}},
		"by type":            {ledger.Query{AgentType: "desktop"}, []string{"other"}},
		"by work type":       {ledger.Query{WorkType: "show"}, []string{"other"}},
		"by who was asked":   {ledger.Query{Agent: "d"}, []string{"other"}},
		"by who held it":     {ledger.Query{Agent: "a"}, []string{"running", "failed", "done"}},
		"by label":           {ledger.Query{Labels: map[string]string{"env": "test"}}, []string{"queued", "running"}},
		"by two labels":      {ledger.Query{Labels: map[string]string{"env": "test", "site": "attic"}}, []string{"queued"}},
		"by a label's value": {ledger.Query{Labels: map[string]string{"env": "live"}}, nil},
		"since":              {ledger.Query{Since: before.Add(time.Hour)}, nil},
		"until":              {ledger.Query{Until: before.Add(-time.Hour)}, nil},
		"between":            {ledger.Query{Since: before.Add(-time.Hour), Until: before.Add(time.Hour), WorkType: "show"}, []string{"other"}},
	} {
		found, next, err := w.List(c.query)
		var got, want []string
		for _, task := range found {
			got = append(got, task.TaskID)
		}
		for _, name := range c.want {
			want = append(want, string(ids[name]))
		}
		if name == "all" {
			want = got
		}
		slices.Sort(want)
		if slices.Sort(got); err != nil || next != "" || !slices.Equal(got, want) {
			t.Errorf("%s: List = %v, %q, %v, want %v", name, got, next, err, want)
		}
	}
}

// Pages neither lose nor repeat a task while others come.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []string
	for range 7 {
		want = append(want, string(w.submit(order{})))
	}
	w.folded(w.Ledger)
	slices.Reverse(want)
	var got []string
	for cursor, more := "", true; more; more = cursor != "" {
		var page []view.Task
		var err error
		if page, cursor, err = w.List(ledger.Query{Limit: 2, Cursor: cursor}); err != nil {
			t.Fatal(err)
		}
		for _, task := range page {
			got = append(got, task.TaskID)
		}
		w.submit(order{})
		w.folded(w.Ledger)
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages = %v, want %v", got, want)
	}
	for _, cursor := range []string{"x", "dA", "!", "MTIz", "dDA"} {
		if _, _, err := w.List(ledger.Query{Cursor: cursor}); !errors.Is(err, ledger.ErrCursor) {
			t.Errorf("List(cursor %q) = %v, want ErrCursor", cursor, err)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := string(w.submit(order{}))
	w.submit(order{})
	w.folded(w.Ledger)
	for prefix, want := range map[string]int{id: 1, strings.ToUpper(id): 1, id[:13]: 1, "": 2, "zzz": 0, id + "0": 0} {
		if found := w.Find(prefix, 5); len(found) != want {
			t.Errorf("Find(%q) = %v, want %d", prefix, found, want)
		}
	}
	if found := w.Find("", 1); len(found) != 1 {
		t.Errorf("Find with limit 1 = %v", found)
	}
}

func TestVoidEntriesMakeNoTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := subject.TaskID(message.NewUUID())
	w.put(subject.Event(id, "mallory"), []byte("{}"))
	w.put("chiffon.task.X.event.mallory", []byte("{}"))
	w.folded(w.Ledger)
	if found, _, _ := w.List(ledger.Query{}); len(found) != 0 {
		t.Errorf("List = %v", found)
	}
	if _, ok := w.Get(id); ok || len(w.Find("", 5)) != 0 || len(w.Open(func(*ledger.Task) bool { return true })) != 0 {
		t.Error("void entries are shown as a task")
	}
}

func TestSaveAndLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	story(w)
	w.folded(w.Ledger)
	saved := save(t, w.Ledger)
	loaded := ledger.New(w.Client, natstest.Log(t))
	if err := loaded.Load(bytes.NewReader(saved)); err != nil {
		t.Fatal(err)
	}
	if again := save(t, loaded); !bytes.Equal(again, saved) {
		t.Errorf("saved, loaded and saved:\n%s\nwant\n%s", again, saved)
	}
	story(w) // what has come since
	w.run(loaded)
	fresh, _ := w.run(ledger.New(w.Client, natstest.Log(t)))
	w.folded(loaded)
	w.folded(fresh)
	if got, want := save(t, loaded), save(t, fresh); !bytes.Equal(got, want) {
		t.Errorf("loaded and folded on:\n%s\nwant what folding all gives\n%s", got, want)
	}
	for name, text := range map[string]string{
		"another version": `{"v": 1}`, "nothing": "", "cut off": string(saved[:len(saved)/2]), "no JSON": "hello",
	} {
		l := ledger.New(w.Client, natstest.Log(t))
		err := l.Load(strings.NewReader(text))
		if err == nil || errors.Is(err, ledger.ErrVersion) != (name == "another version") {
			t.Errorf("%s: Load = %v", name, err)
		}
		if len(l.Find("", 5)) != 0 {
			t.Errorf("%s: Load leaves something in the ledger", name)
		}
	}
}

func save(t *testing.T, l *ledger.Ledger) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := l.Save(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// The last sequence of a stream may be that of a task that was removed: the views are complete all the same.
func TestLoadedAfterAPurge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kept, gone := w.submit(order{}), w.submit(order{})
	for _, id := range []subject.TaskID{gone, kept} {
		if err := w.PurgeTask(t.Context(), subject.TasksStream, id, 0); err != nil {
			t.Fatal(err)
		}
		fresh, stop := w.run(ledger.New(w.Client, natstest.Log(t)))
		for end := time.Now().Add(patience); ; <-time.After(5 * time.Millisecond) {
			if loading, done, of := fresh.Loading(); !loading {
				break
			} else if time.Now().After(end) {
				t.Fatalf("still loading: %d of %d", done, of)
			}
		}
		stop()
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(order{})
	if err := w.Wait(t.Context(), 1); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := w.Wait(ctx, 99); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait for what does not come = %v", err)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := story(w)
	w.folded(w.Ledger)
	old := w.EndedBefore(time.Now().Add(time.Hour), 10)
	if !slices.Equal(old, []subject.TaskID{ids["done"]}) {
		t.Errorf("EndedBefore = %v, want %v", old, ids["done"])
	}
	if got := w.EndedBefore(time.Now().Add(-time.Hour), 10); len(got) != 0 {
		t.Errorf("EndedBefore an hour ago = %v", got)
	}
	w.Forget(old...)
	if found, _, _ := w.List(ledger.Query{}); len(found) != 4 {
		t.Errorf("after Forget there are %d tasks, want 4", len(found))
	}
}

func ExampleCursor() {
	c, err := ledger.ParseCursor("12.7")
	fmt.Println(c, err)
	_, err = ledger.ParseCursor("twelve")
	fmt.Println(err)
	// Output:
	// 12.7 <nil>
	// event id "twelve" is not <number>.<number>
}

package backup_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/backup"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// submit appends the first entry of a task, and cancel its end.
func submit(t *testing.T, c *broker.Client) (id subject.TaskID, tail uint64) {
	t.Helper()
	id = subject.TaskID(message.NewUUID())
	m := message.New(subject.Orchestrator, "infra", message.NewUUID(), message.NewUUID(),
		message.WorkRequest{TaskID: id, WorkType: "run", Parameters: json.RawMessage(`{"pad":"` + strings.Repeat("x", 2000) + `"}`)})
	d, err := tasklog.Write(tasklog.Submitted, id, subject.Request(id, "infra", subject.Any, subject.Normal), m)
	if err == nil {
		tail, err = c.Append(t.Context(), d.At(0, 0, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	return id, tail
}

func cancel(t *testing.T, c *broker.Client, id subject.TaskID, tail uint64) {
	t.Helper()
	m := message.New(subject.Orchestrator, "infra", message.NewUUID(), message.NewUUID(),
		message.WorkResult{TaskID: id, Status: message.ResultCancelled, ExitCode: 143, ResourcesUsed: &message.ResourcesUsed{}})
	d, err := tasklog.Write(tasklog.Cancelled, id, subject.Event(id, subject.Orchestrator), m)
	if err == nil {
		_, err = c.Append(t.Context(), d.At(tail, 0, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// full is a broker with 30 ended and 20 open tasks, a consumer, an agent and a leader, and its backup.
func full(t *testing.T) (*broker.Client, []byte) {
	t.Helper()
	c := natstest.Run(t)
	for range 30 {
		id, tail := submit(t, c)
		cancel(t, c, id, tail)
	}
	for range 20 {
		submit(t, c)
	}
	if _, err := c.TypeConsumers(t.Context(), "infra"); err != nil {
		t.Fatal(err)
	}
	for bucket, key := range map[string]string{broker.AgentsBucket: "nas", broker.StateBucket: broker.LeaderKey} {
		kv, err := c.Bucket(t.Context(), bucket)
		if err == nil {
			_, err = kv.Put(t.Context(), key, []byte("me"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var file bytes.Buffer
	if _, err := backup.Write(t.Context(), c, &file); err != nil {
		t.Fatal(err)
	}
	return c, file.Bytes()
}

// What is restored holds the same messages at the same places, and is taken as a store.
func TestRestore(t *testing.T) {
	t.Parallel()
	c, file := full(t)
	dir := filepath.Join(t.TempDir(), "broker")
	m, err := backup.Into(t.Context(), dir, bytes.NewReader(file), natstest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Parts) != 7 || m.Messages() != 83 || m.Format != backup.Format || m.Parts[6].Stream != subject.TasksStream {
		t.Errorf("manifest %+v", m)
	}
	s, err := broker.Start(broker.ServerConfig{Dir: dir, Log: natstest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	again := natstest.Connect(t, broker.Config{Embedded: s})
	if err := again.Ensure(t.Context(), broker.LimitsFor(s.StoreCapacity()), 1); err != nil {
		t.Fatal(err)
	}
	all := func(c *broker.Client) (text string) {
		for m, err := range c.Range(t.Context(), subject.TasksStream, ">", 1) {
			if err != nil {
				t.Fatal(err)
			}
			text += fmt.Sprintf("%d %s %s %s\n", m.Seq, m.Subject, m.Time, m.Data)
		}
		return text
	}
	if got, want := all(again), all(c); got != want {
		t.Errorf("the task log has %d bytes of text, want %d", len(got), len(want))
	}
	if _, err := again.Consumer(t.Context(), subject.TypeConsumer("infra", subject.Low)); err != nil {
		t.Error(err)
	}
	kv, err := again.Bucket(t.Context(), broker.AgentsBucket)
	if err == nil {
		_, err = kv.Get(t.Context(), "nas")
	}
	if err != nil {
		t.Errorf("the agent: %v", err)
	}
	if kv, err = again.Bucket(t.Context(), broker.StateBucket); err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(t.Context(), broker.LeaderKey); err == nil {
		t.Errorf("%s still leads", e.Value())
	}
	submit(t, again)
	if _, err := backup.Restore(t.Context(), again, bytes.NewReader(file), nil); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("restored into a broker that has data: %v", err)
	}
	if _, err := backup.Into(t.Context(), dir, bytes.NewReader(file), natstest.Log(t)); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("restored into a store that has data: %v", err)
	}
}

// A broker of somebody else's gets all of it or nothing.
func TestRestoreIntoABroker(t *testing.T) {
	t.Parallel()
	_, file := full(t)
	s, err := broker.Start(broker.ServerConfig{Dir: t.TempDir(), Log: natstest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c := natstest.Connect(t, broker.Config{Embedded: s})
	tooMany := func(stream string) broker.Fit { // replicas, for a single server
		if stream == subject.TasksStream {
			return broker.Fit{Replicas: 3}
		}
		return broker.Fit{}
	}
	if _, err := backup.Restore(t.Context(), c, bytes.NewReader(file), tooMany); err == nil || !strings.Contains(err.Error(), subject.TasksStream) {
		t.Errorf("three replicas on one server: %v", err)
	}
	if left, err := c.Streams(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("a restore that failed leaves %v, %v", left, err)
	}
	if _, err := backup.Restore(t.Context(), c, bytes.NewReader(file), nil); err != nil {
		t.Errorf("after that: %v", err)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	_, file := full(t)
	rep, err := backup.Verify(t.Context(), bytes.NewReader(file), natstest.Log(t))
	if err != nil || rep.Tasks != 50 || rep.Ended != 30 || rep.Open != 20 || rep.Void != 0 || len(rep.Damage) != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A log whose beginning is missing is damage, wherever it was lost.
func TestVerifyTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	id, tail := submit(t, c)
	cancel(t, c, id, tail)
	if err := c.PurgeTask(t.Context(), subject.TasksStream, id, tail); err != nil { // its first entry alone
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := backup.Write(t.Context(), c, &file); err != nil {
		t.Fatal(err)
	}
	rep, err := backup.Verify(t.Context(), bytes.NewReader(file.Bytes()), natstest.Log(t))
	if err != nil || rep.Tasks != 0 || len(rep.Damage) != 1 || !strings.Contains(rep.Damage[0], string(id)) {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	_, file := full(t)
	if _, err := backup.Read(bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func([]byte) []byte
		says   string
	}{
		"empty":              {func([]byte) []byte { return nil }, "does not begin as one"},
		"something else":     {func([]byte) []byte { return []byte("hello\n") }, "does not begin as one"},
		"cut in the middle":  {func(b []byte) []byte { return b[:len(b)/2] }, "damaged"},
		"cut before the end": {func(b []byte) []byte { return b[:len(b)-4096] }, "damaged"},
		"one bit is another": {func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "damaged"},
		"no manifest": {func(b []byte) []byte {
			return repack(t, b, func(n string, d []byte) []byte { return keep(n != "manifest.json", d) })
		}, "no manifest"},
		"a piece is missing": {func(b []byte) []byte {
			return repack(t, b, func(n string, d []byte) []byte { return keep(!strings.Contains(n, "TASKS"), d) })
		}, "stream CHIFFON_TASKS"},
		"a stream too many":      {func(b []byte) []byte { return repack(t, b, more) }, "manifest names"},
		"a newer format":         {func(b []byte) []byte { return repack(t, b, newerFormat) }, "format 2"},
		"a file that is no part": {func(b []byte) []byte { return repack(t, b, stranger) }, "does not belong"},
	} {
		changed := c.change(bytes.Clone(file))
		if _, err := backup.Read(bytes.NewReader(changed)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		dir := filepath.Join(t.TempDir(), "broker")
		if _, err := backup.Into(t.Context(), dir, bytes.NewReader(changed), natstest.Log(t)); err == nil {
			t.Errorf("%s: it is restored", name)
		}
		if left, _ := filepath.Glob(dir + "*"); len(left) > 0 {
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
}

func keep(ok bool, data []byte) []byte {
	if ok {
		return data
	}
	return nil
}

// more, newerFormat and stranger change the files of a backup; repack puts what they add under the name behind "+".
func more(name string, data []byte) []byte {
	if name == "manifest.json" {
		return append([]byte("+streams/CHIFFON_MORE/000001\n"), data...)
	}
	return data
}

func newerFormat(name string, data []byte) []byte {
	if name == "head.json" {
		return bytes.Replace(data, []byte(`"format": 1`), []byte(`"format": 2`), 1)
	}
	return data
}

func stranger(name string, data []byte) []byte {
	if name == "manifest.json" {
		return append([]byte("+../etc/passwd\n"), data...)
	}
	return data
}

func repack(t *testing.T, file []byte, change func(name string, data []byte) []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	r, w := tar.NewReader(bytes.NewReader(file)), tar.NewWriter(&out)
	add := func(name string, data []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: time.Unix(0, 0)}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		data = change(h.Name, data)
		if extra, rest, ok := bytes.Cut(data, []byte("\n")); ok && bytes.HasPrefix(extra, []byte("+")) {
			add(string(extra[1:]), []byte("x"))
			data = rest
		}
		if data != nil {
			add(h.Name, data)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

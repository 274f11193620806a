package settings

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"chiffon/pkg/token"
)

type common struct {
	LogLevel string `envconfig:"LOG_LEVEL" default:"info" desc:"What is logged."`
}

type config struct {
	common
	Slots  int           `envconfig:"SLOTS" default:"1" desc:"How many tasks run at once."`
	Drain  time.Duration `envconfig:"DRAIN" default:"60s" desc:"How long running work may take to end."`
	Sync   bool          `envconfig:"SYNC"`
	Dirs   []string      `envconfig:"DIRS" default:"/a,/b"`
	Labels Pairs         `envconfig:"LABELS"`
	Broker string        `envconfig:"NATS_URL" whole:"true" default:"nats://localhost:4222"`
	ID     string        `envconfig:"ID" required:"true" desc:"Its name."`
	Pin    int           `envconfig:"PIN" secret:"true"`
	Token  token.Token   `envconfig:"TOKEN"`
	Made   string        // no setting
}

// The environment belongs to the process, so these tests are not parallel.

func TestRead(t *testing.T) {
	for name, value := range map[string]string{
		"P_SLOTS": "4", "P_DIRS": "", "P_LABELS": "site = attic, gpu=none,", "P_ID": "a", "NATS_URL": "nats://b:1", "P_OTHER": "x",
		"P_SYNC": "true", "SLOTS": "9", "DRAIN": "9s", "P_TOKEN": strings.Repeat("0", 32),
	} {
		t.Setenv(name, value)
	}
	got := config{Made: "kept"}
	if err := Read("P", &got, "P_OTHER"); err != nil {
		t.Fatal(err)
	}
	tok, _ := token.Parse(strings.Repeat("0", 32))
	want := config{
		common: common{LogLevel: "info"}, Slots: 4, Drain: time.Minute, Sync: true, Dirs: []string{"/a", "/b"},
		Labels: Pairs{"site": "attic", "gpu": "none"}, Broker: "nats://b:1", ID: "a", Token: tok, Made: "kept",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Read = %+v, want %+v", got, want)
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	for name, value := range map[string]string{
		"P_SLOTS": "four", "P_DRAIN": "1 minute", "P_SYNC": "perhaps", "P_LABELS": "site", "P_PIN": "s3cret", "P_TOKEN": "t0ken",
		"P_SLOT": "4", "P_LOGLEVEL": "debug", "P_WHATEVER": "x", "PX_SLOT": "1",
	} {
		t.Setenv(name, value)
	}
	var c config
	err := Read("P", &c)
	if err == nil {
		t.Fatal("Read = nil")
	}
	want := []string{
		`P_SLOTS: "four" is not a whole number; it means: How many tasks run at once; unset it for the default 1`,
		`P_DRAIN: "1 minute" is not a duration such as 30s, 5m or 720h; it means: How long running work may take to end; unset it for the default 60s`,
		`P_SYNC: "perhaps" is not true or false; set it right`,
		`P_LABELS: "site": "site" must be key=value; set it right`,
		`P_ID is not set; it means: Its name`,
		`P_PIN: its value is not a whole number; set it right`,
		`P_TOKEN: its value is not what it is for; set it right`,
		`P_LOGLEVEL is no setting; did you mean P_LOG_LEVEL?`,
		`P_SLOT is no setting; did you mean P_SLOTS?`,
		`P_WHATEVER is no setting; unset it (docs/settings.md lists all)`,
	}
	if got := strings.Split(err.Error(), "\n"); !reflect.DeepEqual(got, want) {
		t.Errorf("Read =\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func TestDescribe(t *testing.T) {
	rows := Describe("P", new(config))
	want := []Row{
		{"P_LOG_LEVEL", "info", "What is logged."}, {"P_SLOTS", "1", "How many tasks run at once."},
	}
	if len(rows) != 10 || !reflect.DeepEqual(rows[:2], want) || rows[6].Name != "NATS_URL" {
		t.Errorf("Describe = %v, want 10 rows that begin with %v", rows, want)
	}
}

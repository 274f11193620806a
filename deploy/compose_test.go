// Package deploy_test holds compose.yaml, the Dockerfile, the units and the installation to what their documents say.
// It knows nothing of the programs that they run.
package deploy_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"
)

const composeFile = "../compose.yaml"

// load reads a compose file's text as docker compose would.
func load(t *testing.T, text []byte) (*types.Project, error) {
	t.Helper()
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  "..",
		ConfigFiles: []types.ConfigFile{{Filename: composeFile, Content: text}},
	}, func(o *loader.Options) { o.SetProjectName("chiffon", true) })
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestCompose(t *testing.T) {
	t.Parallel()
	project, err := load(t, read(t, composeFile))
	if err != nil {
		t.Fatalf("compose.yaml does not load: %v", err)
	}
	want := []string{"agentrunner", "jaeger", "nats", "orchestrator"}
	if got := slices.Sorted(slices.Values(project.ServiceNames())); !slices.Equal(got, want) {
		t.Errorf("services = %q, want %q", got, want)
	}
	for name, service := range project.Services {
		image, tag, _ := strings.Cut(service.Image, ":")
		if image == "" {
			t.Errorf("%s: no image", name)
		}
		if service.Build == nil && (tag == "" || tag == "latest") {
			t.Errorf("%s: image %q names no version", name, service.Image)
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is published on %q, want 127.0.0.1", name, port.Published, port.HostIP)
			}
		}
		if name != "nats" && service.NetworkMode != "service:nats" {
			t.Errorf("%s: network_mode %q, want service:nats, where loopback is shared", name, service.NetworkMode)
		}
		if service.Build != nil && !slices.Contains(stages(t), service.Build.Target) {
			t.Errorf("%s: the Dockerfile has no stage %q", name, service.Build.Target)
		}
		for _, mount := range service.Volumes {
			if mount.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(mount.Source); err != nil {
				t.Errorf("%s: mounts what is not there: %v", name, err)
			}
		}
	}
}

// What compose-go refuses it refuses by name, so TestCompose can fail.
func TestComposeRefusesUnknownKeys(t *testing.T) {
	t.Parallel()
	text := strings.Replace(string(read(t, composeFile)), "    image: nats", "    imagee: nats", 1)
	_, err := load(t, []byte(text))
	if err == nil || !strings.Contains(err.Error(), "imagee") {
		t.Errorf("loading imagee: got %v, want an error that names it", err)
	}
}

// newer says which keys of a compose file docker-compose 1.29 refuses.
func newer(text []byte) (found []string, err error) {
	var file struct {
		Name     any `yaml:"name"`
		Services map[string]struct {
			Develop   any `yaml:"develop"`
			DependsOn map[string]struct {
				Restart any `yaml:"restart"`
			} `yaml:"depends_on"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.Name != nil {
		found = append(found, "name")
	}
	for name, service := range file.Services {
		if service.Develop != nil {
			found = append(found, name+".develop")
		}
		for on, condition := range service.DependsOn {
			if condition.Restart != nil {
				found = append(found, name+".depends_on."+on+".restart")
			}
		}
	}
	return found, nil
}

func TestComposeSuitsOlderTools(t *testing.T) {
	t.Parallel()
	if found, err := newer(read(t, composeFile)); err != nil || len(found) > 0 {
		t.Errorf("compose.yaml: keys that docker-compose 1.29 refuses: %q, %v", found, err)
	}
	for text, want := range map[string]string{
		"name: x":                               "name",
		"services: {a: {develop: {watch: []}}}": "a.develop",
		"services: {a: {depends_on: {b: {restart: true}}}}":  "a.depends_on.b.restart",
		"services: {a: {depends_on: {b: {restart: false}}}}": "a.depends_on.b.restart",
	} {
		if found, err := newer([]byte(text)); err != nil || !slices.Equal(found, []string{want}) {
			t.Errorf("newer(%q) = %q, %v, want %q", text, found, err, want)
		}
	}
}

// stages lists the names of the Dockerfile's stages.
func stages(t *testing.T) (names []string) {
	t.Helper()
	for line := range strings.Lines(string(read(t, "Dockerfile"))) {
		if part := strings.Fields(line); len(part) == 4 && part[0] == "FROM" && part[2] == "AS" {
			names = append(names, part[3])
		}
	}
	return names
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	if got, want := stages(t), []string{"build", "orchestrator", "agentrunner"}; !slices.Equal(got, want) {
		t.Errorf("stages = %q, want %q", got, want)
	}
	version := ""
	for line := range strings.Lines(string(read(t, "../go.mod"))) {
		if after, ok := strings.CutPrefix(line, "go "); ok {
			version = strings.TrimSuffix(strings.TrimSpace(after), ".0") // the image of the line has its latest fixes
		}
	}
	if first := "FROM golang:" + version + "-alpine AS build\n"; !strings.Contains(string(read(t, "Dockerfile")), first) {
		t.Errorf("the Dockerfile does not build with go.mod's Go: want %q", first)
	}
}

// The broker of compose.yaml keeps the promises of the embedded one.
func TestBrokerConfig(t *testing.T) {
	t.Parallel()
	opts, err := server.ProcessConfigFile("nats/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if opts.MaxPayload != 4<<20 {
		t.Errorf("max_payload = %d, want 4 MiB", opts.MaxPayload)
	}
	if !opts.JetStream || opts.StoreDir != "/data" || !opts.SyncAlways {
		t.Errorf("jetstream %v in %q, sync always %v; want on, in /data, always", opts.JetStream, opts.StoreDir, opts.SyncAlways)
	}
}

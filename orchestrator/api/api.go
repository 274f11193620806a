// Package api is the HTTP API: OpenAPI generated from its types, problems, events. It knows how to ask and how to
// answer, and decides nothing.
package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"chiffon/orchestrator/breaker"
	"chiffon/orchestrator/dispatch"
	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
)

// Version is the version of the API.
const Version = "1"

// Config is what the API stands on.
type Config struct {
	Client     *broker.Client
	Ledger     *ledger.Ledger
	Agents     *registry.Registry
	Dispatcher *dispatch.Dispatcher
	Gate       *gate.Gate
	Breakers   *breaker.Set

	// Way is the way to the broker; nil is one that is never known to be lost.
	Way *breaker.Way

	// ReadOnly says why nothing new can be stored; nil, or an answer of nil, is that it can.
	ReadOnly func() error

	// Told is called when somebody was told that the server is ready; may be nil.
	Told func()

	// TokenHash is the hash of the one bearer token that is let in.
	TokenHash string

	// Release is the version of the program.
	Release string

	// Checks is doctor's view of the server.
	Checks func(context.Context) []view.Check

	// Stopping is closed when the server is about to stop: long answers end then, so that their readers go elsewhere.
	Stopping <-chan struct{}
}

// An API answers HTTP requests.
type API struct {
	cfg  Config
	huma huma.API
	http http.Handler
}

const maxBody = 4 << 20

// New makes the API. It is an http.Handler.
func New(cfg Config) *API {
	mux := http.NewServeMux()
	c := huma.DefaultConfig("Chiffon orchestrator", Version)
	c.Info.Description = "Submit work, follow it, see who does it. Errors are RFC 9457 problems; a field that is wrong is named in errors[].location."
	c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", nil // no page that loads scripts, no $schema in bodies
	c.OpenAPIPath = ""                                     // served below, without needing a token
	c.RejectUnknownQueryParameters = true                  // a filter that is misspelt must not choose everything
	c.Transformers = append(c.Transformers, instance)
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	a := &API{cfg: cfg, huma: humago.New(mux, c)}
	a.huma.UseMiddleware(a.along)
	a.tasks()
	a.retries()
	a.reasons()
	a.events()
	a.agents()
	a.breakers()
	a.health()
	a.backups()
	document := a.OpenAPI()
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json")
		_, _ = w.Write(document) // the reader has gone
	})
	a.http = a.guard(typed(routed(mux)))
	return a
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.http.ServeHTTP(w, r) }

// OpenAPI is the API's document: OpenAPI 3.1 as indented JSON.
func (a *API) OpenAPI() []byte {
	data, err := json.MarshalIndent(a.huma.OpenAPI(), "", "  ")
	if err != nil {
		panic(err) // made of our own types
	}
	return append(data, '\n')
}

// operation completes what every operation says.
func operation(method, path, id, summary string, more ...func(*huma.Operation)) huma.Operation {
	op := huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary, MaxBodyBytes: maxBody,
		Security: []map[string][]string{{"token": {}}}, Errors: []int{http.StatusUnauthorized},
	}
	for _, m := range more {
		m(&op)
	}
	return op
}

func open(op *huma.Operation) { op.Security, op.Errors = nil, nil }

func answers(codes ...int) func(*huma.Operation) {
	return func(op *huma.Operation) { op.Errors = append(op.Errors, codes...) }
}

func described(text string) func(*huma.Operation) {
	return func(op *huma.Operation) { op.Description = text }
}

package ui

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

const (
	// maxStreams and maxUserStreams limit the open streams of all users, and of one.
	maxStreams, maxUserStreams = 256, 16
	// streamTime is the longest life of a stream. The browser opens the next one, for which the proxy has a fresh token.
	streamTime = 5 * time.Minute
	writeTime  = 30 * time.Second
)

// securityPolicy lets pages load only the files of this server. No script and no style is in a page itself.
const securityPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// pages by path.
var pages = map[string]struct {
	name  string
	build builder
}{
	"/": {"fleet", fleetPage}, "/queue": {"queue", queuePage}, "/job": {"job", jobPage}, "/policies": {"policies", policiesPage},
}

// server serves the pages.
type server struct {
	options   *options
	app       *command.App
	snapshots snapshots
	streams   streams
}

func newServer(o *options, a *command.App) *server {
	s := &server{options: o, app: a, streams: streams{byUser: map[user]int{}}}
	s.snapshots = snapshots{refresh: o.refresh, now: a.Now, streams: &s.streams, byUser: map[user]*snapshot{}}
	return s
}

// handler serves the pages to requests that are admitted.
func (s *server) handler(admission access) http.Handler {
	static, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	assets := http.FileServerFS(static)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readTimeout + writeTime)) // a recorder of tests has none
		h := w.Header()
		h.Set("Content-Security-Policy", securityPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "pages can only be read", http.StatusMethodNotAllowed)
			return
		}
		token, ok := admission.admit(w, r)
		if !ok {
			return
		}
		_, isPage := pages[r.URL.Path]
		switch {
		case r.URL.Path == "/style.css" || r.URL.Path == "/live.js":
			assets.ServeHTTP(w, r)
		case !isPage:
			http.NotFound(w, r)
		case r.Header.Get("Accept") == "text/event-stream" && r.Method == http.MethodGet:
			s.stream(w, r, token)
		default:
			body, _, status := s.render(r.Context(), r, token, "page")
			respond(w, body, status)
		}
	})
}

// respond sends a page, or why there is none.
func respond(w http.ResponseWriter, body []byte, status int) {
	if status == http.StatusUnauthorized {
		unauthorized(w, "the hub does not accept your credentials: log in again")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the browser may have gone
}

// render returns a page or, with the template live, the part of it that changes, and from when its facts are.
func (s *server) render(ctx context.Context, r *http.Request, token, template string) (body []byte, asOf time.Time, status int) {
	u := userOf(token)
	snapshot, ok := s.snapshots.of(u)
	if !ok {
		return []byte("too many users read the hub at this time: try again in a few seconds"), time.Time{}, http.StatusServiceUnavailable
	}
	of := pages[r.URL.Path]
	v := s.options.newView(s.app, token, snapshot)
	p := of.build(ctx, v, r.URL.Query())
	if snapshot.unauthorized.Load() && s.options.passthrough {
		s.snapshots.drop(u, snapshot)
		return nil, time.Time{}, http.StatusUnauthorized
	}
	p.Name, p.Time, p.Refresh, p.Retry = of.name, snapshot.born, s.options.refresh.Milliseconds(), max(30, int(s.options.refresh.Seconds()))
	for i, f := range p.Fields {
		p.Fields[i].Value = format.Printable(f.Value)
	}
	for _, note := range v.notes {
		p.Notes = append(p.Notes, format.Printable(note))
	}
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, template, p); err != nil {
		return []byte("the page can't be shown: " + err.Error()), time.Time{}, http.StatusInternalServerError
	}
	return out.Bytes(), snapshot.born, http.StatusOK
}

// stream sends the part of a page that changes, as server-sent events, each time it has changed. An event time at each
// tick says from when the facts are, and that the stream goes on.
func (s *server) stream(w http.ResponseWriter, r *http.Request, token string) {
	ctx, cancel := context.WithTimeout(r.Context(), streamTime)
	defer cancel()
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // that of the server is for requests; it would end the stream
	body, asOf, status := s.render(ctx, r, token, "live")
	if status != http.StatusOK {
		respond(w, body, status)
		return
	}
	u := userOf(token)
	if !s.streams.begin(u) {
		http.Error(w, "too many pages are open: close some", http.StatusServiceUnavailable)
		return
	}
	defer s.streams.end(u)
	w.Header().Set("Content-Type", "text/event-stream")
	ticks := time.NewTicker(s.options.refresh)
	defer ticks.Stop()
	var last []byte
	for status == http.StatusOK { // if not, the browser asks again, and gets the status
		message := fmt.Appendf(nil, "event: time\ndata: %s\n\n", format.Time(asOf))
		if !bytes.Equal(body, last) {
			message = fmt.Appendf(message, "data: %s\n\n", bytes.ReplaceAll(body, []byte("\n"), []byte("\ndata: ")))
		}
		last = body
		_ = out.SetWriteDeadline(time.Now().Add(readTimeout + writeTime)) // a recorder of tests has none
		if _, err := w.Write(message); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		body, asOf, status = s.render(ctx, r, token, "live")
	}
}

// streams counts the open streams.
type streams struct {
	mu     sync.Mutex
	all    int
	byUser map[user]int
}

// begin counts a stream, or returns false if there are too many.
func (s *streams) begin(u user) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams || s.byUser[u] >= maxUserStreams {
		return false
	}
	s.all++
	s.byUser[u]++
	return true
}

// has reports whether a user has an open stream.
func (s *streams) has(u user) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byUser[u] > 0
}

func (s *streams) end(u user) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.byUser[u]--; s.byUser[u] == 0 {
		delete(s.byUser, u)
	}
}

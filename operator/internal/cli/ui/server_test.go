package ui

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
)

// servePage makes the path /test a page of the test, and returns a server and a request of its stream.
func servePage(t *testing.T, o options, build builder) (*server, *http.Request) {
	t.Helper()
	of := pages["/"]
	of.name, of.build = "test", build
	pages["/test"] = of
	t.Cleanup(func() { delete(pages, "/test") })
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/test", http.NoBody)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Authorization", "Bearer made-up")
	return newServer(&o, &command.App{Now: time.Now, Flags: genericclioptions.NewConfigFlags(true)}), r
}

// A page says from when its facts are, not when it was drawn.
func TestPageStatesTheAgeOfItsFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := servePage(t, options{refresh: time.Minute}, func(context.Context, *view, url.Values) *page { return &page{} })
		_, began, _ := s.render(t.Context(), r, "", "page")
		time.Sleep(40 * time.Second)
		body, _, _ := s.render(t.Context(), r, "", "page")
		if want := began.UTC().Format("15:04:05"); !strings.Contains(string(body), want) || time.Since(began) != 40*time.Second {
			t.Errorf("no %s in %s", want, body)
		}
	})
}

// A stream sends the content when it changes, and the time of the facts at each tick.
func TestStreamSendsWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draws := 0
		s, r := servePage(t, options{refresh: 10 * time.Second}, func(context.Context, *view, url.Values) *page {
			draws++
			return &page{Sections: []section{{Text: []string{"before", "after"}[draws/4]}}}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		s.handler(bearerAccess{}).ServeHTTP(w, r.WithContext(ctx))
		sent := w.Body.String()
		if times, before, after := strings.Count(sent, "event: time\n"), strings.Count(sent, "before"), strings.Count(sent, "after"); times != 6 || before != 1 || after != 1 {
			t.Errorf("%d times, %d and %d contents: %s", times, before, after, sent)
		}
	})
}

// The hub's answer to a token comes before the first word of a stream, and nothing of the token's user is kept.
func TestRefusedTokenKeepsNothing(t *testing.T) {
	s, r := servePage(t, options{refresh: time.Minute, passthrough: true}, func(_ context.Context, v *view, _ url.Values) *page {
		v.snapshot.unauthorized.Store(true)
		return &page{}
	})
	w := httptest.NewRecorder()
	s.handler(bearerAccess{}).ServeHTTP(w, r)
	if w.Code != http.StatusUnauthorized {
		t.Errorf("status %d", w.Code)
	}
	if len(s.snapshots.byUser) != 0 || s.streams.all != 0 {
		t.Errorf("%d snapshots and %d streams are kept", len(s.snapshots.byUser), s.streams.all)
	}
}

func TestRefreshIsCappedForTokens(t *testing.T) {
	o := options{refresh: maxAge + time.Second, listen: ":0", passthrough: true}
	if o.check() == nil {
		t.Error("a revoked token may read for longer than maxAge")
	}
	o.listen, o.passthrough = "", false
	if err := o.check(); err != nil {
		t.Error(err)
	}
}

// The key leaves the address bar also when the browser is known, and the key of a command line is then used up.
func TestKeyLeavesTheAddressBar(t *testing.T) {
	k := newKeyAccess(1)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/?key="+k.issueOnce(), http.NoBody)
	r.AddCookie(&http.Cookie{Name: "plimsoll-ui-1", Value: k.key})
	w := httptest.NewRecorder()
	if _, ok := k.admit(w, r); ok || w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
		t.Errorf("status %d, to %q", w.Code, w.Header().Get("Location"))
	}
	r.Header.Del("Cookie")
	w = httptest.NewRecorder()
	if k.admit(w, r); w.Code != http.StatusForbidden {
		t.Errorf("the key of the command line is valid again: status %d", w.Code)
	}
}

package collector

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestHealthyFailsWithoutRecentCollection(t *testing.T) {
	f := setup(t)
	health := func() int {
		response := httptest.NewRecorder()
		f.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/health", nil))
		return response.Code
	}
	if got := health(); got != http.StatusServiceUnavailable {
		t.Fatalf("before any collection: %d", got)
	}
	f.collect(t)
	if got := health(); got != http.StatusOK {
		t.Fatalf("after a collection: %d", got)
	}
	f.source.err = io.ErrUnexpectedEOF
	if err := f.Collect(t.Context()); err == nil {
		t.Fatal("no error although the source cannot list its devices")
	}
	f.cfg.Now = func() time.Time { return time.Now().Add(11 * time.Second) }
	if got := health(); got != http.StatusServiceUnavailable {
		t.Fatalf("after a collection 11 s ago: %d", got)
	}
}

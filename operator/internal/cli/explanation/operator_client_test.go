package explanation

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The operator says in its response what to do if it makes too many explanations.
func TestBusyOperator(t *testing.T) {
	const text = "the operator makes one explanation at a time for namespace team-a, and few in total: repeat the request in some seconds"
	response := httptest.NewRecorder()
	http.Error(response, text, http.StatusServiceUnavailable)
	if err := checkStatus(response.Result()); err == nil || !strings.HasSuffix(err.Error(), "503 Service Unavailable: "+text) {
		t.Errorf("error %v, want the operator's text", err)
	}
}

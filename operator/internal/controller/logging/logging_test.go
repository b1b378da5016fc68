package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestForRequests(t *testing.T) {
	for _, tc := range []struct {
		name string
		req  *reconcile.Request
		want string
	}{
		{"no request", nil, `msg=x controller=workload`},
		{"cluster-scoped object", &reconcile.Request{NamespacedName: types.NamespacedName{Name: "gpu"}}, `msg=x controller=workload gate=gpu`},
		{"namespaced object", &reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "a", Name: "b"}}, `msg=x controller=workload gate=a/b`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			logger := logr.FromSlogHandler(slog.NewTextHandler(&out, nil))
			forRequests(logger, "workload", "gate")(tc.req).Info("x")
			if _, got, _ := strings.Cut(strings.TrimSpace(out.String()), "level=INFO "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

package condition

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTransitions(t *testing.T) {
	fresh, held, stale := True("Fresh", ""), False("Held", ""), False("Stale", "")
	for _, tc := range []struct {
		name          string
		before, after *Decision
		want          []string
	}{
		{"first True", nil, &fresh, nil},
		{"first False", nil, &held, []string{"DataFresh"}},
		{"unchanged", &held, &held, nil},
		{"status", &fresh, &held, []string{"DataFresh"}},
		{"reason", &held, &stale, []string{"DataFresh"}},
		{"recovery", &stale, &fresh, []string{"DataFresh"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before, after []metav1.Condition
			if tc.before != nil {
				Set(&before, "DataFresh", *tc.before, 1)
			}
			Set(&after, "DataFresh", *tc.after, 1)
			var got []string
			for _, c := range Transitions(before, after) {
				got = append(got, c.Type)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetReportsChanges(t *testing.T) {
	var conditions []metav1.Condition
	for _, tc := range []struct {
		name       string
		decision   Decision
		generation int64
		want       bool
	}{
		{"first", True("Ready", "all is well"), 1, true},
		{"the same", True("Ready", "all is well"), 1, false},
		{"another message", True("Ready", "all is still well"), 1, true},
		{"another generation", True("Ready", "all is still well"), 2, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Set(&conditions, "Ready", tc.decision, tc.generation); got != tc.want {
				t.Errorf("changed: %t, want %t", got, tc.want)
			}
			if c := conditions[0]; c.Message != tc.decision.Message || c.ObservedGeneration != tc.generation {
				t.Errorf("%+v", c)
			}
		})
	}
}

func TestTruncate(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"short", "short", "short"},
		{"exact", strings.Repeat("ü", 8), strings.Repeat("ü", 8)},
		{"long", strings.Repeat("ü", 9), strings.Repeat("ü", 5) + "..."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Truncate(tc.text, 8); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

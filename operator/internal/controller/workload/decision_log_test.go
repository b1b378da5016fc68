package workload

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// loggedDecision is a line of the log about a decision.
type loggedDecision struct {
	UID        string           `json:"uid"`
	Attempt    int              `json:"attempt"`
	Decision   *gate.Decision   `json:"decision"`
	Candidates []gate.Candidate `json:"candidates"`
}

func (b *bench) loggedDecisions(level slog.Level) (decisions []loggedDecision) {
	b.t.Helper()
	out := &bytes.Buffer{}
	ctx := log.IntoContext(b.t.Context(), logr.FromSlogHandler(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level})))
	if _, err := b.Reconcile(ctx, reconcile.Request{NamespacedName: b.key}); err != nil {
		b.t.Fatal(err)
	}
	for lines := json.NewDecoder(out); lines.More(); {
		line := loggedDecision{}
		if err := lines.Decode(&line); err != nil {
			b.t.Fatal(err)
		}
		if line.Decision != nil {
			decisions = append(decisions, line)
		}
	}
	return decisions
}

func TestDecisionsAreLoggedAtDebugLevel(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(map[string]float64{"cluster2": 3})
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	b.create(wl)
	want := b.look()
	logged := b.loggedDecisions(slog.LevelDebug)
	if len(logged) != 1 {
		t.Fatalf("got %d decisions, want 1: %+v", len(logged), logged)
	}
	d := logged[0]
	if d.UID != string(wl.UID) || d.Attempt != 1 || d.Decision.State != gate.Ready || !cmp.Equal(d.Decision.Order, []string{"cluster2"}) || d.Decision.Verdicts[1].Room.Value != 3 {
		t.Errorf("got %+v", d)
	}
	if diff := cmp.Diff(want.Room.Candidates, d.Candidates); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}

func TestDecisionsAreNotLoggedAtInfoLevel(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	if logged := b.loggedDecisions(slog.LevelInfo); len(logged) > 0 {
		t.Errorf("got %+v", logged)
	}
}

package querycache

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func newTerms() *fixture {
	b := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15, Conditions: []v1alpha1.GateCondition{
		{Name: "power", Query: `power_ok`, Scope: v1alpha1.ScopeCluster}, {Name: "freeze", Query: `freeze`, Scope: v1alpha1.ScopeFleet}}})
	b.source.responses["floor("] = series("cluster1", 3.0)
	b.source.responses["power_ok"] = series("cluster1", 1.0)
	b.source.responses["freeze"] = series("", 1.0)
	return b
}

// terms of the first cluster, and of the fleet.
func (b *fixture) terms(t *testing.T) (cluster, fleet gate.ConditionResult) {
	t.Helper()
	got, all := b.Results(t.Context(), b.gate, b.facts)
	return got["cluster1"].Conditions[0], all.Conditions[0]
}

// The last good answer stands with the time at which it was asked for, however often
// the question fails since.
func TestConditionsTellTheirAge(t *testing.T) {
	for name, fail := range map[string]func(*fakeSource){
		"one question fails": func(s *fakeSource) { s.failing = "freeze" },
		"the source fails":   func(s *fakeSource) { s.err = context.DeadlineExceeded },
	} {
		b := newTerms()
		b.terms(t)
		fail(b.source)
		for range 10 {
			b.add(time.Minute)
			b.refreshAll()
		}
		_, fleet := b.terms(t)
		if want := (gate.ConditionResult{Name: "freeze", Number: gate.Known(1), EvaluatedAt: noon}); cmp.Diff(want, fleet) != "" {
			t.Errorf("%s: %+v, want %+v", name, fleet, want)
		}
		b.source.failing, b.source.err = "", nil
		b.add(time.Minute)
		b.refreshAll()
		if _, fleet := b.terms(t); !fleet.EvaluatedAt.Equal(noon.Add(11 * time.Minute)) {
			t.Errorf("%s, and is answered again: %+v", name, fleet)
		}
	}
}

func TestConditionThatNobodyAnswered(t *testing.T) {
	b := newTerms()
	b.source.failing = "freeze"
	if cluster, fleet := b.terms(t); !fleet.EvaluatedAt.IsZero() || fleet.Known || cluster.EvaluatedAt.IsZero() {
		t.Errorf("after a restart nobody has answered the one that fails: %+v, and somebody the other: %+v", fleet, cluster)
	}
}

// Since when it is asked in vain, while anybody asks.
func TestFleetTellsSinceWhenItIsAskedInVain(t *testing.T) {
	b := newTerms()
	b.terms(t)
	b.source.err = errors.New("connection refused")
	began := noon.Add(time.Minute)
	for range 3 {
		b.add(time.Minute)
		b.cleanUp()
		if _, fleet := b.Results(t.Context(), b.gate, b.facts); !fleet.FailingSince.Equal(began) {
			t.Errorf("asked in vain since %s, want %s", fleet.FailingSince, began)
		}
	}
	b.source.err, b.source.failing = nil, "freeze"
	b.add(time.Minute)
	if _, fleet := b.Results(t.Context(), b.gate, b.facts); !fleet.FailingSince.Equal(began) {
		t.Errorf("freeze is asked in vain since %s, want %s", fleet.FailingSince, began)
	}
	b.source.failing = ""
	b.add(time.Minute)
	if _, fleet := b.Results(t.Context(), b.gate, b.facts); !fleet.FailingSince.IsZero() {
		t.Errorf("all is answered: %+v", fleet)
	}
}

func TestConditionsAnsweredInPart(t *testing.T) {
	part := func(a query.Result, failed ...string) query.Result {
		a.Partial = failed == nil
		for _, name := range failed {
			if a.Failed == nil {
				a.Failed = map[string]string{}
			}
			a.Failed[name] = "Unauthorized"
		}
		return a
	}
	for _, tc := range []struct {
		name           string
		power, freeze  query.Result
		cluster, fleet bool
	}{
		{"neither said yes", part(series("cluster2", 1.0)), part(series("cluster2", 0.0)), true, true},
		{"both said something", part(series("cluster1", 0.0)), part(series("cluster2", 7.0)), false, false},
		{"this cluster did not answer", part(series(), "cluster1"), part(series(), "cluster1"), true, true},
		{"another cluster did not answer", part(series(), "cluster2"), series(), false, false},
	} {
		b := newTerms()
		b.source.responses["power_ok"], b.source.responses["freeze"] = tc.power, tc.freeze
		if cluster, fleet := b.terms(t); cluster.Partial != tc.cluster || fleet.Partial != tc.fleet {
			t.Errorf("%s: %+v %+v", tc.name, cluster, fleet)
		}
	}
}

// A cluster whose own endpoint answers that it has none of the devices has none,
// whatever became of another's.
func TestOneEndpointThatFailsIsOneCluster(t *testing.T) {
	b := newTerms()
	b.source.responses["sample_timestamp"] = series("cluster1", b.unixAt(-5), "cluster2", b.unixAt(-5))
	fit := series()
	fit.Failed = map[string]string{"cluster2": "Unauthorized"}
	b.source.responses["floor("] = fit
	got, _ := b.Results(t.Context(), b.gate, b.facts)
	if got["cluster1"].SampledAt.IsZero() || !got["cluster2"].SampledAt.IsZero() {
		t.Errorf("cluster1 answered and cluster2 did not: %+v %+v", got["cluster1"], got["cluster2"])
	}
}

func TestConditionThatIsNoNumberIsExplained(t *testing.T) {
	b := newTerms()
	b.source.responses["power_ok"], b.source.responses["freeze"] = series("cluster1", math.NaN()), series("", math.Inf(1))
	cluster, fleet := b.terms(t)
	if cluster.Known || cluster.EvaluatedAt.IsZero() || !fleet.Known {
		t.Errorf("got %+v and %+v", cluster, fleet)
	}
	if _, err := json.Marshal([]gate.ConditionResult{cluster, fleet}); err != nil {
		t.Errorf("explain can't tell it: %v", err)
	}
}

// told to the gate when it is tidied up.
func (b *fixture) told() string {
	said := ""
	b.ReportFailing = func(problems map[string]string) { said = problems["gpu"] }
	b.cleanUp()
	return said
}

func TestTheGateIsToldWhatNobodyAnswers(t *testing.T) {
	b := newTerms()
	b.terms(t)
	if got := b.told(); got != "" {
		t.Errorf("all is answered, told %q", got)
	}
	b.source.failing = "freeze"
	b.add(time.Minute)
	b.terms(t)
	small := b.facts
	small.PodSets = []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", DevicesPerPod: 1, Pods: 1}}
	b.Results(t.Context(), b.gate, small)
	if got, want := b.told(), "not answered since 2026-05-01T12:00:00Z: conditions/freeze: too heavy"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	b.source.err = errors.New("connection refused")
	b.add(time.Minute)
	b.refreshAll()
	all := "not answered since 2026-05-01T12:00:00Z: capacity, conditions/freeze, conditions/power, fit, headroom, largest, sampleTime: connection refused"
	if got := b.told(); got != all {
		t.Errorf("told %q, want %q", got, all)
	}
	b.source.err = nil
	b.gate.Generation++
	b.gate.Spec.Conditions = []v1alpha1.GateCondition{{Name: "freeze", Query: `frozen`, Scope: v1alpha1.ScopeFleet}}
	b.add(time.Minute)
	b.Results(t.Context(), b.gate, b.facts)
	if got := b.told(); got != "" {
		t.Errorf("the gate was mended, told %q", got)
	}
}

func TestTheGateIsToldWhatIsAnsweredInPart(t *testing.T) {
	b := newTerms()
	part := series("cluster1", 3.0)
	part.Failed = map[string]string{"cluster3": "timeout", "cluster2": "Unauthorized"}
	b.source.responses["floor("] = part
	b.terms(t)
	if got, want := b.told(), "answered in part: fit: cluster2: Unauthorized"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	b.source.failing = "freeze"
	b.add(time.Minute)
	b.terms(t)
	if got, want := b.told(), "not answered since 2026-05-01T12:00:00Z: conditions/freeze: too heavy"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	part.Failed, part.Partial, b.source.failing = nil, true, ""
	b.source.responses["floor("] = part
	b.add(time.Minute)
	b.terms(t)
	if got, want := b.told(), "answered in part: fit: some stores of the source did not answer"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestTheGateIsToldWhatWasNeverAnswered(t *testing.T) {
	b := newTerms()
	b.source.failing = "freeze"
	b.terms(t)
	if got, want := b.told(), "not answered: conditions/freeze: too heavy"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	b.add(timing.UnusedResultTTL + time.Second)
	if got := b.told(); got != "" {
		t.Errorf("nobody asks it any longer, told %q", got)
	}
}

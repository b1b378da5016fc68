package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// Explain decides anew, writes nothing, and says why.
func (r *Reconciler) Explain(ctx context.Context, key client.ObjectKey) (*gate.Explanation, error) {
	wl := &kueue.Workload{}
	if err := r.client.Get(ctx, key, wl); err != nil {
		return nil, err
	}
	s, err := r.gather(ctx, wl)
	if err != nil {
		return nil, err
	}
	e := &gate.Explanation{Workload: key.String(), Gate: s.gateName, Nominated: wl.Status.NominatedClusterNames}
	e.Cluster = s.placed()
	if e.Dispatch, err = dispatch.Decode(wl.Annotations); err != nil {
		e.Problem = err.Error()
	}
	if len(s.own) > 0 {
		e.State, e.Message = string(s.check().State), s.check().Message
	}
	stand := gate.Snapshot{Workload: wl, Own: s.own, MultiKueue: s.mk, Config: s.config, Connected: s.usable,
		Cluster: e.Cluster, Dispatch: e.Dispatch, BuiltinDispatcher: !r.nominate}
	g, known := r.gateOf(s)
	switch {
	case !r.leads():
		e.Follower = true
		e.Problem = "this replica of the operator does not lead, and the leader alone knows what the gate would decide: ask again, or the leader"
	case len(s.own) == 0:
	case !known:
		stand.Fault = r.absent(ctx, s)
	case g.Problem != "":
		stand.Fault = "PlacementGate " + s.gateName + " to be mended: " + g.Problem
	default:
		r.explainDecision(ctx, s, g, e)
		stand.Decision = &e.Decision
	}
	e.WaitsFor = stand.WaitsFor(r.now())
	return e, nil
}

// leads says whether this process decides: another has no gates on its board and
// nothing in its ledger.
func (r *Reconciler) leads() bool {
	select {
	case <-r.elected:
		return true
	default:
		return false
	}
}

// absent gate: one that does not exist, or that its controller is yet to read.
func (r *Reconciler) absent(ctx context.Context, s *subject) string {
	if _, exists := r.specOf(ctx, s.gateName); exists {
		return "PlacementGate " + s.gateName + " to be read"
	}
	return "PlacementGate " + s.gateName + ", which does not exist"
}

func (r *Reconciler) explainDecision(ctx context.Context, s *subject, g registry.Gate, e *gate.Explanation) {
	e.Facts = r.facts(ctx, s, &g.Spec)
	answers, fleet := r.ask.Results(ctx, g, e.Facts)
	list := candidates(s, g, answers)
	view := r.ledger.View()
	rules := gate.RulesOf(&g.Spec)
	rules.Incumbents = r.sentTo(s)
	e.Problem, e.Conditions = fleet.Problem, fleet.Conditions
	e.Decision, e.Clusters = gate.Explain(e.Facts, list, fleet, view, rules, e.Dispatch.Attempt+1+kueuestate.CountEvictions(s.wl), r.now())
}

// Prefix of the handler's paths.
const Prefix = "/explain/workload/"

// Handler serves Explain at /explain/workload/NAMESPACE/NAME as JSON.
func (r *Reconciler) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		namespace, name, ok := strings.Cut(strings.TrimPrefix(req.URL.Path, Prefix), "/")
		if !ok || req.Method != http.MethodGet {
			http.Error(w, "want GET "+Prefix+"NAMESPACE/NAME", http.StatusBadRequest)
			return
		}
		e, err := r.Explain(req.Context(), client.ObjectKey{Namespace: namespace, Name: name})
		if apierrors.IsNotFound(err) {
			http.Error(w, fmt.Sprintf("workload %s/%s does not exist", namespace, name), http.StatusNotFound)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(e)
	})
}

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

	"plimsoll.dev/plimsoll/operator/internal/gate"
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
	e.Cluster = r.placed(s)
	if e.Dispatch, err = gate.DecodeDispatch(wl.Annotations); err != nil {
		e.Problem = err.Error()
	}
	if len(s.own) > 0 {
		e.State, e.Message = string(s.check().State), s.check().Message
	}
	g, ok := r.gateOf(s)
	if ok && g.Problem == "" {
		r.explainDecision(ctx, s, g, e)
	}
	e.WaitsFor = waitsFor(s, e, g, ok)
	return e, nil
}

func (r *Reconciler) explainDecision(ctx context.Context, s *subject, g gate.Gate, e *gate.Explanation) {
	e.Facts = r.facts(ctx, s, &g.Spec)
	answers, fleet := r.ask.answers(ctx, g, e.Facts)
	list := candidates(s, g, answers)
	view := r.ledger.View()
	e.Problem = fleet.Problem
	e.Decision, e.Clusters = gate.Explain(e.Facts, list, fleet, view, gate.RulesOf(&g.Spec), e.Dispatch.Attempt+1, r.now())
}

func waitsFor(s *subject, e *gate.Explanation, g gate.Gate, known bool) string {
	switch {
	case gate.IsFinished(s.wl):
		return "nothing: it is finished"
	case e.Cluster != "":
		return "nothing: it is on " + e.Cluster
	case s.mk == "" && gate.IsAdmitted(s.wl):
		return "nothing: it is admitted"
	case !gate.HoldsQuota(s.wl):
		return "quota in its ClusterQueue"
	case gate.IsEvicted(s.wl):
		return "its eviction to complete"
	case len(s.own) == 0:
		return "no gate decides its queue"
	case !known:
		return "PlacementGate " + s.gateName + ", which does not exist or was not read yet"
	case g.Problem != "":
		return "PlacementGate " + s.gateName + " to be mended: " + g.Problem
	case len(e.Nominated) > 0:
		return "one of " + strings.Join(e.Nominated, ", ") + " to admit it"
	case !gate.OthersReady(s.wl, s.own[0], s.mk):
		return "its other admission checks"
	case e.Decision.State != gate.Ready:
		return e.Decision.Message
	case s.mk == "":
		return "Kueue to admit it"
	}
	return "its nomination"
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

package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// errNotFound is returned for a workload that does not exist.
type errNotFound struct{ key client.ObjectKey }

func (e errNotFound) Error() string { return fmt.Sprintf("workload %s does not exist", e.key) }

// Explain decides about a workload as the next reconciliation would, and writes nothing.
func (r *Reconciler) Explain(ctx context.Context, key client.ObjectKey) (*gate.Explanation, error) {
	o, err := r.observe(ctx, key)
	if err == nil && o.wl != nil && !kueuestate.HoldsQuota(o.wl) {
		err = r.observeWorkload(ctx, o, o.wl)
	}
	if err != nil {
		return nil, err
	}
	if o.wl == nil {
		return nil, errNotFound{key}
	}
	e := &gate.Explanation{Workload: key.String(), Gate: o.gateName, Nominated: o.wl.Status.NominatedClusterNames,
		Cluster: o.placedOn(), Dispatch: o.record}
	if o.recordErr != nil {
		e.Problem = o.recordErr.Error()
	}
	if len(o.checks) > 0 {
		e.State, e.Message = string(o.check().State), o.check().Message
	}
	snapshot := gate.Snapshot{Workload: o.wl, Own: o.checks, MultiKueue: o.multiKueue, Config: o.workers.config, Connected: o.workers.connected,
		Cluster: e.Cluster, Dispatch: e.Dispatch, BuiltinDispatcher: !r.nominates}
	switch {
	case !r.isLeader():
		e.Follower = true
		e.Problem = "this replica of the operator is not the leader, and only the leader knows what the gate would decide; query the leader"
	case len(o.checks) == 0:
	case !o.gateKnown && o.gateExists:
		snapshot.Fault = "PlacementGate " + o.gateName + " to be read by the operator"
	case !o.gateKnown:
		snapshot.Fault = "PlacementGate " + o.gateName + ", which does not exist"
	case o.gate.Problem != "":
		snapshot.Fault = "PlacementGate " + o.gateName + " to be repaired: " + o.gate.Problem
	default:
		if err := r.explainDecision(ctx, o, e); err != nil {
			return nil, err
		}
		snapshot.Decision = &e.Decision
	}
	e.WaitsFor = snapshot.WaitsFor(o.now)
	return e, nil
}

// isLeader reports whether this process decides. The others have an empty registry and ledger.
func (r *Reconciler) isLeader() bool {
	select {
	case <-r.elected:
		return true
	default:
		return false
	}
}

// explainDecision adds the verdicts on the clusters, and the decision of the next reconciliation. A
// decision that sends the workload nowhere keeps the order that the verdicts give.
func (r *Reconciler) explainDecision(ctx context.Context, o *observation, e *gate.Explanation) error {
	results, fleet, err := r.cache.ResultsToExplain(ctx, o.gate, o.jobFacts())
	if err != nil {
		return err
	}
	r.addResults(o, results, fleet)
	o.phase = phaseOf(o)
	if err := r.measureOthers(ctx, o); err != nil {
		return err
	}
	e.Facts = o.jobFacts()
	attempt := o.record.Attempt + 1 + kueuestate.CountEvictions(o.wl)
	e.Problem, e.Conditions, e.SkippedConditions = o.fleet.Problem, o.fleet.Conditions, o.fleet.SkippedConditions
	e.Rank, e.Preceding = o.rank(), ""
	if o.preceding.Name != "" {
		e.Preceding = o.preceding.String()
	}
	e.Decision, e.Clusters = gate.Explain(e.Facts, o.candidates, o.fleet, o.view, o.rules(), attempt, o.now)
	e.Decision.Hold = o.usableHold(e.Decision)
	next := o.nextDecision()
	if next == nil {
		return nil
	}
	if len(next.Order) == 0 {
		next.Order = e.Decision.Order
	}
	next.Verdicts = nil
	e.Decision = *next
	return nil
}

// nextDecision returns the decision that the next reconciliation writes; nil = it decides nothing.
func (o *observation) nextDecision() *gate.Decision {
	if o.phase == PhaseWaiting || o.phase == PhaseNominating {
		return o.stepDecide().decision
	}
	if o.phase == PhaseAwaitingPrimary {
		d := o.decisionWithoutPrimary()
		return &d
	}
	return nil
}

// otherNamespace stands for the name of a workload of another namespace.
const otherNamespace = "a workload of another namespace"

// hideOtherNamespaces reduces what the explanation shows of workloads of other namespaces to the devices
// that they use up, and since when: the caller may read this Workload, and perhaps no other one.
func hideOtherNamespaces(e *gate.Explanation, namespace string) {
	isOther := func(workload string) bool { return workload != "" && !strings.HasPrefix(workload, namespace+"/") }
	if isOther(e.Preceding) {
		for _, text := range []*string{&e.Decision.Message, &e.WaitsFor} {
			if *text == queuedMessage(e.Preceding) {
				*text = queuedMessage(otherNamespace)
			}
		}
		e.Preceding = otherNamespace
	}
	for i := range e.Clusters {
		entries := e.Clusters[i].Ledger
		for n, entry := range entries {
			if isOther(entry.Workload) {
				entries[n] = reduce(entry)
			}
		}
	}
}

// reduce returns an entry with its cluster, devices and times only.
func reduce(e ledger.Entry) ledger.Entry {
	reduced := ledger.Entry{Workload: otherNamespace, Cluster: e.Cluster, DebitedAt: e.DebitedAt, AdmittedAt: e.AdmittedAt, PodsReadyAt: e.PodsReadyAt, EndedAt: e.EndedAt}
	for _, p := range e.PodSets {
		reduced.PodSets = append(reduced.PodSets, shape.PodSet{Resource: p.Resource, DevicesPerPod: p.DevicesPerPod, Pods: p.Pods})
	}
	return reduced
}

// Prefix of the handler's paths.
const Prefix = "/explain/workload/"

// Handler serves Explain at /explain/workload/NAMESPACE/NAME as JSON, one namespace's explanations after
// each other.
func (r *Reconciler) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		namespace, name, ok := strings.Cut(strings.TrimPrefix(req.URL.Path, Prefix), "/")
		if !ok || req.Method != http.MethodGet {
			http.Error(w, "want GET "+Prefix+"NAMESPACE/NAME", http.StatusBadRequest)
			return
		}
		e, err := r.explainInTurn(req.Context(), client.ObjectKey{Namespace: namespace, Name: name})
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		hideOtherNamespaces(e, namespace)
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(e); err != nil {
			log.FromContext(req.Context()).V(1).Info("Sending an explanation failed", "workload", e.Workload, "error", err.Error())
		}
	})
}

func statusOf(err error) int {
	switch {
	case errors.As(err, &errNotFound{}):
		return http.StatusNotFound
	case errors.As(err, &errBusy{}):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

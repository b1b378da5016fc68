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
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// errNotFound is returned for a workload that does not exist.
type errNotFound struct{ key client.ObjectKey }

func (e errNotFound) Error() string { return fmt.Sprintf("workload %s does not exist", e.key) }

// Explain decides about a workload as the next reconciliation would, and writes nothing.
func (r *Reconciler) Explain(ctx context.Context, key client.ObjectKey) (*gate.Explanation, error) {
	s, err := r.observe(ctx, r.engine.Begin(key))
	if err == nil && s.Workload != nil && !kueuestate.HoldsQuota(s.Workload) {
		err = r.observeWorkload(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	if s.Workload == nil {
		return nil, errNotFound{key}
	}
	e := &gate.Explanation{Workload: key.String(), Gate: s.Gate.Name, Nominated: s.Workload.Status.NominatedClusterNames,
		Cluster: s.Checks.PlacedCluster(s.Workload), Dispatch: s.Record.Record}
	if s.Record.Err != nil {
		e.Problem = s.Record.Err.Error()
	}
	if len(s.Checks.Own) > 0 {
		e.State, e.Message = string(s.Check().State), s.Check().Message
	}
	snapshot := gate.Snapshot{Workload: s.Workload, Own: s.Checks.Own, MultiKueue: s.Checks.MultiKueue, Config: s.Checks.Config, Connected: s.MultiKueue.Connected,
		Cluster: e.Cluster, Dispatch: e.Dispatch, BuiltinDispatcher: !r.engine.Nominates,
		Period: gate.PeriodOf(&s.Gate.Spec)}
	switch {
	case !r.isLeader():
		e.Follower = true
		e.Problem = "this replica of the operator is not the leader, and only the leader knows what the gate would decide; query the leader"
	case len(s.Checks.Own) == 0:
	case !s.Gate.Known && s.Gate.Exists:
		snapshot.Fault = "PlacementGate " + s.Gate.Name + " to be read by the operator"
	case !s.Gate.Known:
		snapshot.Fault = "PlacementGate " + s.Gate.Name + ", which does not exist"
	case s.Gate.Problem != "":
		snapshot.Fault = "PlacementGate " + s.Gate.Name + " to be repaired: " + s.Gate.Problem
	default:
		if err := r.explainDecision(ctx, s, e); err != nil {
			return nil, err
		}
		snapshot.Decision = &e.Decision
		for _, c := range e.Clusters {
			snapshot.Rejections = append(snapshot.Rejections, c.Rejection)
		}
	}
	if lifecycle.PhaseOf(s) == lifecycle.PhaseWriteRefused {
		snapshot.Fault, snapshot.FaultEnds = s.History.Refusal.Message, "the API server accepts the write"
	}
	wait := snapshot.Wait(s.Now)
	e.WaitsFor, e.Next = wait.For, wait.Next
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
func (r *Reconciler) explainDecision(ctx context.Context, s *lifecycle.Situation, e *gate.Explanation) error {
	clusters, fleet, err := r.cache.CandidatesToExplain(ctx, s.Gate.Gate, s.JobFacts())
	if err != nil {
		return err
	}
	s = r.engine.Measured(s, r.keyOf(s), clusters, fleet)
	if s.IsShadow() {
		s = s.AsWaiting()
	}
	if err := r.measureOthers(ctx, s); err != nil {
		return err
	}
	e.Facts = s.JobFacts()
	e.Problem, e.Requirements, e.SkippedRequirements = s.Room.Fleet.Problem, s.Room.Fleet.Requirements, s.Room.Fleet.SkippedRequirements
	e.Rank, e.Preceding = s.Rank(), ""
	if s.Room.Preceding.Name != "" {
		e.Preceding = s.Room.Preceding.String()
	}
	e.Decision, e.Clusters = s.Inputs(s.Record.Attempt + 1).Explain(s.Now)
	e.Decision.Hold = lifecycle.UsableHold(s, e.Decision)
	next := lifecycle.NextDecision(s)
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

// otherNamespace stands for the name of a workload of another namespace.
const otherNamespace = "a workload of another namespace"

// hideOtherNamespaces reduces what the explanation shows of workloads of other namespaces to the devices
// that they use up, and since when: the caller may read this Workload, and perhaps no other one.
func hideOtherNamespaces(e *gate.Explanation, namespace string) {
	isOther := func(workload string) bool { return workload != "" && !strings.HasPrefix(workload, namespace+"/") }
	if isOther(e.Preceding) {
		for _, text := range []*string{&e.Decision.Message, &e.WaitsFor} {
			if *text == lifecycle.QueuedMessage(e.Preceding) {
				*text = lifecycle.QueuedMessage(otherNamespace)
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

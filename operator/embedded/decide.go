package embedded

import (
	"bytes"
	"context"
	"io"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// checkName is the name of the gate's admission check in the samples.
const checkName = "plimsoll"

// Decision about a job.
type Decision struct {
	// Cluster that takes the job; "" = the job waits.
	Cluster string
	// Message of the gate's admission check.
	Message string
}

// Decide decides about a job that has reserved quota, and reserves its devices on the
// chosen cluster in the ledger.
func (h *Hub) Decide(ctx context.Context, job *batchv1.Job) Decision {
	in := h.gather(ctx, job)
	for {
		view := h.ledger.View()
		d := gate.Decide(in.facts, in.candidates, in.fleet, view, in.rules, 1, h.now())
		if d.State != gate.Ready {
			return Decision{Message: d.Message}
		}
		entry := ledger.Entry{UID: in.facts.UID, Workload: in.facts.Key(), Cluster: d.Order[0], ClusterQueue: in.facts.ClusterQueue, PodSets: in.facts.PodSets, DebitedAt: h.now()}
		if h.ledger.Commit(view, entry.UID, nil, []ledger.Entry{entry}, nil) {
			return Decision{Cluster: entry.Cluster, Message: d.Message}
		}
	}
}

// Admitted records that the pods of a job have started on the cluster.
func (h *Hub) Admitted(job *batchv1.Job, cluster string) {
	h.ledger.MarkAdmitted(uidOf(job), cluster, h.now(), true)
	h.ledger.MarkPodsReady(uidOf(job), h.now())
}

// Ended records that a job has ended.
func (h *Hub) Ended(job *batchv1.Job) { h.ledger.Release(uidOf(job)) }

// Explain returns the text that `kubectl plimsoll explain workload` prints for a job that
// waits.
func (h *Hub) Explain(ctx context.Context, job *batchv1.Job) (string, error) {
	in := h.gather(ctx, job)
	d, clusters := gate.Explain(in.facts, in.candidates, in.fleet, h.ledger.View(), in.rules, 1, h.now())
	snapshot := gate.Snapshot{Workload: in.workload, Own: []string{checkName}, Decision: &d}
	var text bytes.Buffer
	report := explain.Report{Waiting: true, From: explain.FromOperator, Explanation: gate.Explanation{
		Workload: in.facts.Key(), Gate: h.gate.Name, State: string(d.State), Message: d.Message,
		WaitsFor: snapshot.WaitsFor(h.now()), Facts: in.facts, Decision: d, Clusters: clusters, Problem: in.fleet.Problem,
	}}
	err := format.Table(&text, func(w io.Writer) { report.WriteRows(w, false, h.now(), false) })
	return text.String(), err
}

// input is everything that a decision about a job needs, except for the ledger.
type input struct {
	workload   *kueue.Workload
	facts      shape.Facts
	candidates []gate.Candidate
	fleet      gate.Fleet
	rules      gate.Rules
}

func (h *Hub) gather(ctx context.Context, job *batchv1.Job) input {
	g, wl := h.registeredGate(), workloadOf(job, metav1.NewTime(h.now()))
	in := input{workload: wl, rules: gate.RulesOf(&g.Spec), facts: shape.FactsOf(wl, shape.OptionsOf(&g.Spec, nil))}
	in.rules.Rank.Since = h.now() // jobs of the demo never wait long enough for a hold
	in.candidates, in.fleet = h.cache.Candidates(ctx, g, in.facts)
	return in
}

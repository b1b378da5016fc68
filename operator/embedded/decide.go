package embedded

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
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
	// PassedOver is why the job does not go to the cluster with the best total; "" = it does, or the cluster has no room.
	PassedOver string
}

// Decide decides about a job that has reserved quota, and reserves its devices on the
// chosen cluster in the ledger.
func (h *Hub) Decide(ctx context.Context, job *batchv1.Job) Decision {
	s := h.measure(ctx, job)
	for {
		d, clusters := s.Inputs(1).Explain(h.now())
		if d.State != gate.Ready {
			return Decision{Message: d.Message}
		}
		entry := s.Entry(d.Order[0], h.now())
		if h.ledger.Commit(s.Room.View, entry.UID, nil, []ledger.Entry{entry}, nil) {
			return Decision{Cluster: entry.Cluster, Message: d.Message, PassedOver: passedOver(clusters, entry.Cluster)}
		}
		s = s.WithView(h.ledger.View())
	}
}

// passedOver explains the cluster with the best total if the job can go there and does not.
func passedOver(clusters []gate.ClusterExplanation, chosen string) string {
	best := slices.MaxFunc(clusters, func(a, b gate.ClusterExplanation) int { return cmp.Compare(a.Score.Value, b.Score.Value) })
	if best.Cluster == chosen || best.Rejection != gate.RejectNone {
		return ""
	}
	return best.Cluster + " " + best.Why
}

// Admitted records that the pods of a job have started on the cluster.
func (h *Hub) Admitted(job *batchv1.Job, cluster string) {
	h.ledger.MarkAdmitted(uidOf(job), cluster, h.now(), true)
	h.ledger.MarkPodsReady(uidOf(job), h.now())
}

// Ended records that a job has ended.
func (h *Hub) Ended(job *batchv1.Job) { h.ledger.Release(uidOf(job)) }

// Fit returns how many of a job's pods start on the cluster by the gate's fit query. It returns an error if the metrics
// of the cluster do not state it.
func (h *Hub) Fit(ctx context.Context, job *batchv1.Job, cluster string) (pods int, err error) {
	room := h.measure(ctx, job).Room
	if room.Fleet.Problem != "" {
		return 0, errors.New(room.Fleet.Problem)
	}
	for _, c := range room.Candidates {
		if c.Name == cluster && len(c.Shapes) == 1 && !c.SampledAt.IsZero() {
			return int(c.Shapes[0].Fit.Value), nil // without a value, no node has the devices and the labels
		}
	}
	return 0, fmt.Errorf("the fit of job %s on %s is unknown", job.Name, cluster)
}

// Explain returns the text that `kubectl plimsoll explain workload` prints for a job that
// waits.
func (h *Hub) Explain(ctx context.Context, job *batchv1.Job) (string, error) {
	s := h.measure(ctx, job)
	d, clusters := s.Inputs(1).Explain(h.now())
	wait := gate.Snapshot{Workload: s.Workload, Own: []string{checkName}, Decision: &d,
		Period: gate.PeriodOf(&s.Gate.Spec)}.Wait(h.now())
	var text bytes.Buffer
	report := explain.Report{Waiting: true, From: explain.FromOperator, Explanation: gate.Explanation{
		Workload: s.Request.Facts.Key(), Gate: h.gate.Name, State: string(d.State), Message: d.Message,
		WaitsFor: wait.For, Next: wait.Next, Facts: s.Request.Facts, Decision: d, Clusters: clusters, Problem: s.Room.Fleet.Problem,
	}}
	err := format.Table(&text, func(w io.Writer) { report.WriteRows(w, false, h.now(), false) })
	return text.String(), err
}

// measure returns all that a decision about a job needs.
func (h *Hub) measure(ctx context.Context, job *batchv1.Job) *lifecycle.Situation {
	g := h.registeredGate()
	s := lifecycle.OfJob(workloadOf(job, metav1.NewTime(h.now())), g, h.now())
	clusters, fleet := h.cache.Candidates(ctx, g, s.JobFacts())
	return s.Measured(clusters, fleet, h.ledger.View())
}

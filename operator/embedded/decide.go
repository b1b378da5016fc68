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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/whatif"
)

// Decision about a job.
type Decision struct {
	// Cluster that takes the job; "" = the job waits.
	Cluster string
	// Message of the gate's admission check.
	Message string
	// PassedOver is why the job does not go to the cluster with the best total; "" = it does, or the cluster has no room.
	PassedOver string
	// Explanation is the text that `kubectl plimsoll explain workload` prints for the job.
	Explanation string
	uid         string
}

// Decide decides about a job that has reserved quota, and reserves its devices on the chosen cluster in the ledger.
func (h *Hub) Decide(ctx context.Context, job *batchv1.Job) (Decision, error) {
	a, err := h.ask(ctx, job)
	if err != nil {
		return Decision{}, err
	}
	d := Decision{Message: a.Decision.Message, uid: a.Facts.UID}
	if a.Outcome == whatif.Now {
		d.Cluster = a.Decision.Order[0]
		d.PassedOver = passedOver(a.Clusters, d.Cluster)
	}
	var text bytes.Buffer
	report := explain.Report{Waiting: true, From: explain.FromOperator, Explanation: a.Explanation}
	report.State, report.Message = string(a.Decision.State), a.Decision.Message
	err = format.Table(&text, func(w io.Writer) { report.WriteRows(w, false, h.now(), false) })
	d.Explanation = text.String()
	return d, err
}

// ask returns what the operator's own controller decides about a job. Decisions use query results for a period of the gate,
// as in the operator.
func (h *Hub) ask(ctx context.Context, job *batchv1.Job) (*whatif.Answer, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		return nil, err
	}
	manifest := &unstructured.Unstructured{Object: object}
	manifest.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	wl, err := whatif.WorkloadOf(manifest, job.Namespace)
	if err != nil {
		return nil, err
	}
	h.asking.Lock()
	defer h.asking.Unlock()
	if now := h.now(); h.fleet == nil || now.Sub(h.measuredAt) >= gate.PeriodOf(&h.gate.Spec) {
		h.measuredAt = now
		h.fleet, err = whatif.New(ctx, whatif.Question{Gate: &h.gate, Clusters: h.eligible(), Local: true, Ledger: h.ledger, Now: h.now,
			Source: query.SourceInfo{ClusterLabel: clusterLabel, Match: string(v1alpha1.MatchName)}, Querier: h.source})
		if err != nil {
			h.fleet = nil
			return nil, err
		}
	}
	return h.fleet.Ask(ctx, wl)
}

// passedOver explains the cluster with the best total if the job can go there and does not.
func passedOver(clusters []gate.ClusterExplanation, chosen string) string {
	best := slices.MaxFunc(clusters, func(a, b gate.ClusterExplanation) int { return cmp.Compare(a.Score.Value, b.Score.Value) })
	if best.Cluster == chosen || best.Rejection != gate.RejectNone {
		return ""
	}
	return best.Cluster + " " + best.Why
}

// Admitted records that the pods of a job have started on the cluster that was decided.
func (h *Hub) Admitted(d Decision) {
	h.ledger.MarkAdmitted(d.uid, d.Cluster, h.now(), true)
	h.ledger.MarkPodsReady(d.uid, h.now())
}

// Ended records that a job has ended that was decided.
func (h *Hub) Ended(d Decision) { h.ledger.Release(d.uid) }

// Fit returns how many of a job's pods start on the cluster by the gate's fit query. It returns an error if the metrics
// of the cluster do not state it.
func (h *Hub) Fit(ctx context.Context, job *batchv1.Job, cluster string) (pods int, err error) {
	a, err := h.ask(ctx, job)
	if err != nil {
		return 0, err
	}
	h.ledger.Release(a.Facts.UID)
	if a.Problem != "" {
		return 0, errors.New(a.Problem)
	}
	isUnmeasured := func(b gate.BrokenRule) bool {
		return b.Rejection == gate.RejectUnknown || b.Rejection == gate.RejectStale
	}
	for _, c := range a.Clusters {
		if c.Cluster == cluster && !slices.ContainsFunc(c.Broken, isUnmeasured) {
			return int(c.Fit.Value), nil // without a value, no node has the devices and the labels
		}
	}
	return 0, fmt.Errorf("the fit of job %s on %s is unknown", job.Name, cluster)
}

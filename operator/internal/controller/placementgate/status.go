package placementgate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
)

// writeStatus writes the status if it changed, and then reports the transitions of
// conditions.
func (r *Reconciler) writeStatus(ctx context.Context, in *input, decisions []conditionDecision) error {
	before := in.gate
	g := before.DeepCopy()
	for _, d := range decisions {
		// The message of Ready is also the message of an event, which the API limits to 1024 bytes.
		d.Message = gate.Truncate(d.Message)
		condition.Set(&g.Status.Conditions, d.conditionType, d.Decision, g.Generation)
	}
	g.Status.ObservedGeneration = g.Generation
	g.Status.Candidates = int32(len(in.clusters))
	g.Status.Waiting = in.waiting
	g.Status.Holds = heldClusters(in.holds)
	g.Status.Shadow = r.opts.Registry.Shadow.Report(before, r.opts.Now())
	if equality.Semantic.DeepEqual(before.Status, g.Status) {
		log.FromContext(ctx).V(1).Info("Status unchanged", "gate", g.Name)
		return nil
	}
	if err := r.client.Status().Patch(ctx, g, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.reportTransitions(ctx, g, before.Status.Conditions)
	return nil
}

// heldClusters describes holds with the resolution of the API.
func heldClusters(holds []ledger.Hold) []v1alpha1.HeldCluster {
	var list []v1alpha1.HeldCluster
	for _, h := range holds {
		held := v1alpha1.HeldCluster{Workload: h.Workload, Cluster: h.Cluster, Since: metav1.NewTime(h.Since).Rfc3339Copy(), Shadow: h.Shadow}
		if !h.StartsBy.IsZero() {
			at := metav1.NewTime(h.StartsBy).Rfc3339Copy()
			held.StartsBy = &at
		}
		list = append(list, held)
	}
	return list
}

// reportTransitions logs the conditions whose status or reason changed. A transition of
// Ready or ClustersStart also gets an event.
func (r *Reconciler) reportTransitions(ctx context.Context, g *v1alpha1.PlacementGate, before []metav1.Condition) {
	for _, c := range condition.Transitions(before, g.Status.Conditions) {
		if c.Type != v1alpha1.ConditionReady {
			logTransition(ctx, g.Name, before, c)
		}
		if c.Type == v1alpha1.ConditionClustersStart {
			r.sendTransition(g, c)
		}
	}
	old, ready := meta.FindStatusCondition(before, v1alpha1.ConditionReady), meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady)
	if old != nil && old.Status == ready.Status && old.Reason == ready.Reason {
		return
	}
	logTransition(ctx, g.Name, before, *ready)
	r.sendTransition(g, *ready)
}

// sendTransition sends the event of a transition.
func (r *Reconciler) sendTransition(g *v1alpha1.PlacementGate, c metav1.Condition) {
	eventType := corev1.EventTypeNormal
	if c.Status != metav1.ConditionTrue {
		eventType = corev1.EventTypeWarning
	}
	r.recorder.Eventf(g, nil, eventType, c.Reason, "Decide", "%s", c.Message)
}

func logTransition(ctx context.Context, gateName string, before []metav1.Condition, c metav1.Condition) {
	from := metav1.ConditionUnknown
	if old := meta.FindStatusCondition(before, c.Type); old != nil {
		from = old.Status
	}
	log.FromContext(ctx).Info("Condition changed",
		"gate", gateName, "type", c.Type, "from", from, "to", c.Status, "reason", c.Reason, "message", c.Message)
}

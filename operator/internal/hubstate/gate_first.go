package hubstate

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// DecidedFirst returns the names of the ClusterQueues whose workloads the gate decides before Kueue reserves quota for
// them: the policy of config/gate-first is installed, and all LocalQueues of the queue have its label.
func DecidedFirst(ctx context.Context, c client.Reader) (map[string]bool, error) {
	isInstalled, err := hasPolicy(ctx, c, "workloads", func(m admissionv1.Mutation) bool { return mentions(m, v1alpha1.GateFirst) })
	if err != nil || !isInstalled {
		return nil, err
	}
	locals := &kueue.LocalQueueList{}
	if err := c.List(ctx, locals, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list LocalQueues: %w", err)
	}
	first := map[string]bool{}
	for i := range locals.Items {
		queue, hasLabel := string(locals.Items[i].Spec.ClusterQueue), locals.Items[i].Labels[v1alpha1.GateFirst] == "true"
		others, isKnown := first[queue]
		first[queue] = hasLabel && (others || !isKnown)
	}
	return first, nil
}

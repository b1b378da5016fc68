package workload

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// observeWithoutQuota reads what a decision depends on that comes before the quota, with the queue and the flavors that
// Kueue would assign.
func (r *Reconciler) observeWithoutQuota(ctx context.Context, s *lifecycle.Situation) error {
	expected := *s.Workload
	var err error
	if expected.Status.Admission, err = r.expectedAdmission(ctx, s.Workload); err != nil {
		return err
	}
	if expected.Status.Admission == nil {
		return r.observeLostQuota(ctx, s)
	}
	s.Workload = &expected
	if err := r.observeWorkload(ctx, s); err != nil {
		return err
	}
	if len(s.Checks.Own) == 0 { // no other step of a workload without quota depends on checks
		s.Checks = kueuestate.Checks{}
	}
	return nil
}

// expectedAdmission is the admission that Kueue would give the workload if it had quota; nil = its queue does not exist.
// Of several flavors, Kueue assigns the first one for which it has quota, or for which it can preempt: the gate decides
// for the first one whose nodes the pods select.
func (r *Reconciler) expectedAdmission(ctx context.Context, wl *kueue.Workload) (*kueue.Admission, error) {
	local, queue := &kueue.LocalQueue{}, &kueue.ClusterQueue{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}, local); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if err := r.client.Get(ctx, client.ObjectKey{Name: string(local.Spec.ClusterQueue)}, queue); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	admission := &kueue.Admission{ClusterQueue: local.Spec.ClusterQueue}
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		assignment := kueue.PodSetAssignment{Name: set.Name, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{}}
		for _, group := range queue.Spec.ResourceGroups {
			flavor, err := r.expectedFlavor(ctx, group, set.Template.Spec.NodeSelector)
			if err != nil {
				return nil, err
			}
			for _, resource := range group.CoveredResources {
				assignment.Flavors[resource] = flavor
			}
		}
		admission.PodSetAssignments = append(admission.PodSetAssignments, assignment)
	}
	return admission, nil
}

// expectedFlavor is the first flavor of a group whose labels a node selector does not exclude; empty = none.
func (r *Reconciler) expectedFlavor(ctx context.Context, group kueue.ResourceGroup, selector map[string]string) (kueue.ResourceFlavorReference, error) {
	for _, quotas := range group.Flavors {
		flavor := &kueue.ResourceFlavor{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: string(quotas.Name)}, flavor); client.IgnoreNotFound(err) != nil {
			return "", err
		}
		isExcluded := false
		for key, value := range flavor.Spec.NodeLabels {
			wanted, isSelected := selector[key]
			isExcluded = isExcluded || isSelected && wanted != value
		}
		if !isExcluded {
			return quotas.Name, nil
		}
	}
	return "", nil
}

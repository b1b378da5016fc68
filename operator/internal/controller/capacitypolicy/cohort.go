package capacitypolicy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/policies/capacity"
)

// fieldOwner is the field manager of the Cohorts.
const fieldOwner = client.FieldOwner("plimsoll-capacity")

// cohortState is what Kueue has of the Cohort of a policy.
type cohortState struct {
	// live is nil if the Cohort does not exist.
	live *kueue.Cohort
	// owned is true if the policy created it.
	owned bool
	// reserved and queueQuota are sums over the ClusterQueues, and queueQuota also over
	// the Cohorts below.
	reserved, queueQuota map[quotaKey]int64
	// automated is a ClusterQueue whose quota Kueue writes. Empty if there is none.
	automated string
	// orchestrated is a ClusterQueue or Cohort whose effective quotas another component sets, so that those of the spec are
	// proportions only. Empty if there is none.
	orchestrated string
}

func (s *cohortState) use(key quotaKey) capacity.Use {
	use := capacity.Use{Reserved: s.reserved[key], QueueQuota: s.queueQuota[key]}
	if s.live != nil && s.owned {
		devices := sumQuotas(s.live.Spec.ResourceGroups)[key]
		use.CohortQuota = &devices
	}
	return use
}

// readCohort reads the Cohort, and the queues and Cohorts below it.
func (r *Reconciler) readCohort(ctx context.Context, policy *v1alpha1.CapacityPolicy) (*cohortState, error) {
	state := &cohortState{reserved: map[quotaKey]int64{}, queueQuota: map[quotaKey]int64{}}
	live := &kueue.Cohort{}
	found, err := hubstate.Find(ctx, r.client, client.ObjectKey{Name: policy.Spec.CohortName}, live)
	if err != nil {
		return nil, err
	}
	if found {
		state.live, state.owned = live, live.Labels[v1alpha1.CapacityPolicyLabel] == policy.Name
	}
	cohorts, queues := &kueue.CohortList{}, &kueue.ClusterQueueList{}
	if err := r.client.List(ctx, cohorts); err != nil {
		return nil, fmt.Errorf("list Cohorts: %w", err)
	}
	if err := r.client.List(ctx, queues); err != nil {
		return nil, fmt.Errorf("list ClusterQueues: %w", err)
	}
	tree := subtree(policy.Spec.CohortName, cohorts.Items)
	for i := range cohorts.Items {
		if name := cohorts.Items[i].Name; tree[name] && name != policy.Spec.CohortName {
			addQuotas(state.queueQuota, cohorts.Items[i].Spec.ResourceGroups)
		}
	}
	for i := range queues.Items {
		if q := &queues.Items[i]; tree[string(q.Spec.CohortName)] {
			state.addQueue(q)
		}
	}
	if policy.Spec.Mode == v1alpha1.ModeEnforce {
		state.orchestrated, err = r.findOrchestrated(ctx, tree)
	}
	return state, err
}

// findOrchestrated returns the kind and name of a ClusterQueue or Cohort of a tree with
// status.effectiveQuotas.orchestratorRef, which Kueue has since 0.20. The types of Kueue that the operator is built with
// do not have the field, so the objects are read as they are.
func (r *Reconciler) findOrchestrated(ctx context.Context, tree map[string]bool) (string, error) {
	for _, of := range []struct {
		kind   string
		cohort func(*unstructured.Unstructured) string
	}{
		{"Cohort", (*unstructured.Unstructured).GetName},
		{"ClusterQueue", func(u *unstructured.Unstructured) string {
			name, _, _ := unstructured.NestedString(u.Object, "spec", "cohortName") // a string by its CRD
			return name
		}},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind(of.kind + "List"))
		if err := r.client.List(ctx, list); err != nil {
			return "", fmt.Errorf("list effective quotas of %ss: %w", of.kind, err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			ref, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "effectiveQuotas", "orchestratorRef")
			if tree[of.cohort(u)] && ref != nil {
				return of.kind + " " + u.GetName(), nil
			}
		}
	}
	return "", nil
}

func (s *cohortState) addQueue(q *kueue.ClusterQueue) {
	addQuotas(s.queueQuota, q.Spec.ResourceGroups)
	for _, flavor := range q.Status.FlavorsReservation {
		for _, usage := range flavor.Resources {
			s.reserved[quotaKey{string(flavor.Name), string(usage.Name)}] += usage.Total.Value()
		}
	}
	if meta.IsStatusConditionTrue(q.Status.Conditions, kueue.MultiKueueManagerQuotaAutomation) {
		s.automated = q.Name
	}
}

// subtree returns the names of a Cohort and of all Cohorts below it. A Cohort that only
// its queues name is part of the tree, too.
func subtree(root string, cohorts []kueue.Cohort) map[string]bool {
	tree := map[string]bool{root: true}
	for grown := true; grown; {
		grown = false
		for i := range cohorts {
			if c := &cohorts[i]; !tree[c.Name] && tree[string(c.Spec.ParentName)] {
				tree[c.Name], grown = true, true
			}
		}
	}
	return tree
}

func addQuotas(sum map[quotaKey]int64, groups []kueue.ResourceGroup) {
	for _, group := range groups {
		for _, flavor := range group.Flavors {
			for _, q := range flavor.Resources {
				sum[quotaKey{string(flavor.Name), string(q.Name)}] += q.NominalQuota.Value()
			}
		}
	}
}

func sumQuotas(groups []kueue.ResourceGroup) map[quotaKey]int64 {
	sum := map[quotaKey]int64{}
	addQuotas(sum, groups)
	return sum
}

// applyCohort writes the Cohort if the policy may, and its quotas changed. It returns the
// condition Applied.
func (r *Reconciler) applyCohort(ctx context.Context, policy *v1alpha1.CapacityPolicy, cohort *cohortState) (condition.Decision, error) {
	if refused := decideApply(policy, cohort); refused != nil {
		return *refused, nil
	}
	done := condition.True("Applied", "the quotas are in Cohort "+policy.Spec.CohortName)
	want := &kueue.Cohort{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Cohort"},
		ObjectMeta: metav1.ObjectMeta{Name: policy.Spec.CohortName, Labels: map[string]string{v1alpha1.CapacityPolicyLabel: policy.Name}},
		Spec:       kueue.CohortSpec{ResourceGroups: capacity.ResourceGroups(policy.Status.Quotas)},
	}
	if cohort.live == nil {
		if err := r.client.Create(ctx, want, fieldOwner); err != nil {
			return notWritten(err), err
		}
	} else {
		if !needsWrite(policy, cohort) {
			return done, nil
		}
		before := cohort.live.DeepCopy()
		cohort.live.Spec.ResourceGroups = want.Spec.ResourceGroups // the parent and its weight belong to others
		// The resource version makes sure that the label of the owner is still the one that
		// was read.
		if err := r.client.Patch(ctx, cohort.live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), fieldOwner); err != nil {
			return notWritten(err), err
		}
	}
	for i := range policy.Status.Quotas {
		q := &policy.Status.Quotas[i]
		log.FromContext(ctx).Info("Quota written", "cohort", want.Name, "flavor", q.Flavor, "resource", q.Resource,
			"quota", *q.Quota, "cohortQuota", capacity.CohortQuota(q), "measured", q.Measured, "reserved", q.Reserved)
	}
	return done, nil
}

// needsWrite reports whether the Cohort has other quotas than the policy, or does not exist.
func needsWrite(policy *v1alpha1.CapacityPolicy, cohort *cohortState) bool {
	return cohort.live == nil || !equality.Semantic.DeepEqual(cohort.live.Spec.ResourceGroups, capacity.ResourceGroups(policy.Status.Quotas))
}

// notWritten is the condition Applied after a failed write.
func notWritten(err error) condition.Decision {
	return condition.False("WriteFailed", "the Cohort could not be written: "+err.Error())
}

// decideApply returns the condition Applied if the policy must not write its Cohort now,
// and nil if it may.
func decideApply(policy *v1alpha1.CapacityPolicy, cohort *cohortState) *condition.Decision {
	name := policy.Spec.CohortName
	var refused condition.Decision
	switch {
	case policy.Spec.Mode != v1alpha1.ModeEnforce:
		refused = condition.False(v1alpha1.ReasonShadow, "spec.mode is Shadow: Cohort "+name+" is not written; set spec.mode to Apply")
	case cohort.live != nil && !cohort.owned:
		refused = condition.False(v1alpha1.ReasonNotOurs, fmt.Sprintf(
			"Cohort %s exists and CapacityPolicy %s did not create it, so its quotas stay; name another cohort, or delete the Cohort", name, policy.Name))
	case cohort.automated != "":
		refused = condition.False(v1alpha1.ReasonQuotaAutomation, fmt.Sprintf(
			"Kueue itself writes the quota of ClusterQueue %s in Cohort %s; set quotaManagement of its MultiKueueConfig to Manual, or delete the policy", cohort.automated, name))
	case cohort.orchestrated != "":
		refused = condition.False(v1alpha1.ReasonQuotaAutomation, fmt.Sprintf(
			"%s in Cohort %s has status.effectiveQuotas.orchestratorRef: its spec is only a proportion; set spec.mode to Shadow, or end the orchestration", cohort.orchestrated, name))
	case !allKnown(policy.Status.Quotas):
		refused = condition.False("NotMeasured", "no round has measured every quota yet")
	default:
		return nil
	}
	return &refused
}

func allKnown(quotas []v1alpha1.QuotaStatus) bool {
	for i := range quotas {
		if quotas[i].Quota == nil {
			return false
		}
	}
	return true
}

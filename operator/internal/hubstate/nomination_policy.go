package hubstate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ClearsNominations reports whether the hub's API server clears the nominated clusters of
// Workloads that a cluster admitted: a MutatingAdmissionPolicy with a binding changes them.
// Kueue ships such a policy since 0.18.6 and 0.19.2, and config/nomination has another. It
// returns false if the API server does not serve these policies.
func ClearsNominations(ctx context.Context, c client.Reader) (bool, error) {
	return hasPolicy(ctx, c, "workloads/status", changesNominations)
}

// hasPolicy reports whether a MutatingAdmissionPolicy with a binding makes a mutation of a resource of Kueue.
func hasPolicy(ctx context.Context, c client.Reader, resource string, mutates func(admissionv1.Mutation) bool) (bool, error) {
	policies, bindings := &admissionv1.MutatingAdmissionPolicyList{}, &admissionv1.MutatingAdmissionPolicyBindingList{}
	for _, list := range []client.ObjectList{policies, bindings} {
		if err := c.List(ctx, list); meta.IsNoMatchError(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("list %T: %w", list, err)
		}
	}
	return slices.ContainsFunc(policies.Items, func(p admissionv1.MutatingAdmissionPolicy) bool {
		isBound := slices.ContainsFunc(bindings.Items, func(b admissionv1.MutatingAdmissionPolicyBinding) bool { return b.Spec.PolicyName == p.Name })
		return isBound && matches(p.Spec.MatchConstraints, resource) && slices.ContainsFunc(p.Spec.Mutations, mutates)
	}), nil
}

func matches(m *admissionv1.MatchResources, resource string) bool {
	return m != nil && slices.ContainsFunc(m.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIGroups, kueue.SchemeGroupVersion.Group) && slices.Contains(r.Resources, resource)
	})
}

func changesNominations(m admissionv1.Mutation) bool { return mentions(m, "nominatedClusterNames") }

func mentions(m admissionv1.Mutation, field string) bool {
	return m.JSONPatch != nil && strings.Contains(m.JSONPatch.Expression, field) ||
		m.ApplyConfiguration != nil && strings.Contains(m.ApplyConfiguration.Expression, field)
}

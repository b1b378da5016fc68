package kueuestate

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// GateOf returns the name of the PlacementGate that an AdmissionCheck refers to; empty = its
// parameters name none. It returns false if another controller decides the check.
func GateOf(check *kueue.AdmissionCheck) (gate string, isOurs bool) {
	gate, _ = parameterName(check, v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate")
	return gate, check.Spec.ControllerName == v1alpha1.ControllerName
}

// TrialPolicyOf returns the name of the TrialPolicy that an AdmissionCheck refers to. It returns ""
// if another controller decides the check or the check refers to no policy.
func TrialPolicyOf(check *kueue.AdmissionCheck) string {
	name, _ := parameterName(check, v1alpha1.TrialControllerName, v1alpha1.GroupVersion.Group, "TrialPolicy")
	return name
}

// MultiKueueConfigOf returns the name of the MultiKueueConfig that an AdmissionCheck of
// MultiKueue refers to. It returns false for all other checks.
func MultiKueueConfigOf(check *kueue.AdmissionCheck) (string, bool) {
	return parameterName(check, kueue.MultiKueueControllerName, kueue.SchemeGroupVersion.Group, "MultiKueueConfig")
}

// Checks are the admission checks of a workload by who decides them.
type Checks struct {
	// Own are those of gates, sorted. More than one is a mistake. Gates are the PlacementGates by the name of the check.
	Own   []string
	Gates map[string]string
	// MultiKueue's check, and the MultiKueueConfig that it names; empty = none.
	MultiKueue, Config string
	// Trials are those that TrialPolicies decide.
	Trials []string
	// Foreign are those of other controllers.
	Foreign []string
}

// ChecksOf sorts the checks of a workload. find returns a check, or nil if it does not exist: Kueue removes the
// entry of a deleted check. The error is that of find.
func ChecksOf(wl *kueue.Workload, find func(name string) (*kueue.AdmissionCheck, error)) (Checks, error) {
	c := Checks{Gates: map[string]string{}}
	for _, entry := range wl.Status.AdmissionChecks {
		check, err := find(string(entry.Name))
		if err != nil {
			return Checks{}, err
		}
		if check != nil {
			c.add(check)
		}
	}
	slices.Sort(c.Own)
	return c, nil
}

func (c *Checks) add(check *kueue.AdmissionCheck) {
	gate, isOwn := GateOf(check)
	config, isMultiKueue := MultiKueueConfigOf(check)
	switch {
	case isOwn:
		c.Own, c.Gates[check.Name] = append(c.Own, check.Name), gate
	case isMultiKueue:
		c.MultiKueue, c.Config = check.Name, config
	case check.Spec.ControllerName == v1alpha1.TrialControllerName:
		c.Trials = append(c.Trials, check.Name)
	default:
		c.Foreign = append(c.Foreign, check.Name)
	}
}

// Gate is the gate of the first own check; empty = none.
func (c Checks) Gate() string {
	if len(c.Own) == 0 {
		return ""
	}
	return c.Gates[c.Own[0]]
}

func parameterName(check *kueue.AdmissionCheck, controller, group, kind string) (string, bool) {
	p := check.Spec.Parameters
	if check.Spec.ControllerName != controller || p == nil || p.APIGroup != group || p.Kind != kind {
		return "", false
	}
	return p.Name, true
}

// FindCheck returns the workload's entry for an admission check, or nil if there is none.
func FindCheck(wl *kueue.Workload, name string) *kueue.AdmissionCheckState {
	for i := range wl.Status.AdmissionChecks {
		if string(wl.Status.AdmissionChecks[i].Name) == name {
			return &wl.Status.AdmissionChecks[i]
		}
	}
	return nil
}

// LacksChecks reports whether Kueue has not given the workload all admission checks of its queue
// yet. A check of some flavors only (onFlavors) follows in a write of its own, after the quota.
func LacksChecks(queue *kueue.ClusterQueue, wl *kueue.Workload) bool {
	if queue.Spec.AdmissionChecksStrategy == nil || wl.Status.Admission == nil {
		return false
	}
	return slices.ContainsFunc(queue.Spec.AdmissionChecksStrategy.AdmissionChecks, func(rule kueue.AdmissionCheckStrategyRule) bool {
		applies := len(rule.OnFlavors) == 0
		for _, assignment := range wl.Status.Admission.PodSetAssignments {
			for _, flavor := range assignment.Flavors {
				applies = applies || slices.Contains(rule.OnFlavors, flavor)
			}
		}
		return applies && FindCheck(wl, string(rule.Name)) == nil
	})
}

// OtherChecksReady reports whether every check except the named ones is Ready.
func OtherChecksReady(wl *kueue.Workload, except ...string) bool {
	return !slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
		return c.State != kueue.CheckStateReady && !slices.Contains(except, string(c.Name))
	})
}

// AcceptsCheckUpdate reports whether a controller may change the workload's checks now.
// Kueue resets all checks when an eviction completes, so later writes would be lost.
func AcceptsCheckUpdate(wl *kueue.Workload) bool {
	return IsActive(wl) && HoldsQuota(wl) && !IsEvicted(wl)
}

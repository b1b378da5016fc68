package kueuestate

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
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

// Pending are the gates' checks of a workload that are Pending.
func (c Checks) Pending(wl *kueue.Workload) []string {
	return slices.DeleteFunc(slices.Clone(c.Own), func(name string) bool {
		return FindCheck(wl, name).State != kueue.CheckStatePending
	})
}

// Awaited is a check of another controller than the gate and MultiKueue that is not Ready; empty = none.
func (c Checks) Awaited(wl *kueue.Workload) string {
	for _, check := range wl.Status.AdmissionChecks {
		if name := string(check.Name); check.State != kueue.CheckStateReady && name != c.MultiKueue && !slices.Contains(c.Own, name) {
			return name
		}
	}
	return ""
}

// AwaitsWorker reports whether Kueue chose the workload's cluster before that admitted it, as for a
// new slice of an elastic job. For any other workload, MultiKueue sets the cluster and its own check
// Ready in one write.
func (c Checks) AwaitsWorker(wl *kueue.Workload) bool {
	check := FindCheck(wl, c.MultiKueue)
	return check != nil && check.State == kueue.CheckStatePending
}

// AdmittedAt is when a cluster admitted the workload: the transition of MultiKueue's check to
// Ready or, without MultiKueue, of the condition Admitted.
func (c Checks) AdmittedAt(wl *kueue.Workload, otherwise time.Time) time.Time {
	if check := FindCheck(wl, c.MultiKueue); check != nil && check.State == kueue.CheckStateReady {
		return check.LastTransitionTime.Time
	}
	if admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); c.MultiKueue == "" && admitted != nil {
		return admitted.LastTransitionTime.Time
	}
	return otherwise
}

// PendingSince is when the workload began to wait for a check: Kueue adds the check long before it reserves
// quota, or to a workload that already holds quota. It is now if there is no quota, or the check is not Pending.
func PendingSince(wl *kueue.Workload, check string, now time.Time) time.Time {
	since, entry := QuotaReservedAt(wl), FindCheck(wl, check)
	switch {
	case since.IsZero() || entry.State != kueue.CheckStatePending:
		return now
	case entry.LastTransitionTime.After(since):
		return entry.LastTransitionTime.Time
	}
	return since
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
	return slices.ContainsFunc(ChecksFor(queue, wl.Status.Admission), func(name string) bool { return FindCheck(wl, name) == nil })
}

// ChecksFor are the admission checks that a queue, which may be nil, gives a workload with these flavors. nil stands for any
// flavors.
func ChecksFor(queue *kueue.ClusterQueue, admission *kueue.Admission) (names []string) {
	if queue == nil || queue.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	for _, rule := range queue.Spec.AdmissionChecksStrategy.AdmissionChecks {
		applies := len(rule.OnFlavors) == 0 || admission == nil
		if !applies {
			for _, assignment := range admission.PodSetAssignments {
				for _, flavor := range assignment.Flavors {
					applies = applies || slices.Contains(rule.OnFlavors, flavor)
				}
			}
		}
		if applies {
			names = append(names, string(rule.Name))
		}
	}
	return names
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

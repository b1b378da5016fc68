package world

import (
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// RightProfile is the invariant that JobProfiles count each successful job at most once, and no other one.
const RightProfile Invariant = "RightProfile"

// longJobs is a preference for jobs that ran for longer than two minutes: the larger the cluster the better.
const longJobs = `sum by ($cluster_label) (cluster_resource_model:plimsoll_devices:sum{resource="$resource",model="$model"}) * ($profile_duration > bool 120)`

// profileChanged counts the runs in JobProfiles.
func (w *World) profileChanged(e hub.Event, p *v1alpha1.JobProfile) {
	key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	w.profiles[key] = p
	if e.Type == hub.Deleted {
		delete(w.profiles, key)
	}
	counted, ended := int64(0), int64(0)
	for _, p := range w.profiles {
		for _, m := range p.Status.Models {
			counted += m.Runs
		}
	}
	for _, r := range w.order {
		if !r.Done.IsZero() && r.Behavior != Fails && r.TrialOf == "" {
			ended++
		}
	}
	if counted > ended {
		w.broken(RightProfile, p.Name, "the profiles have %d runs after %s changed, and %d jobs have ended with success", counted, p.Name, ended)
	}
}

// makeProfiles gives some worlds profiles of jobs, which the gate reads.
func makeProfiles(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x70726f66))} // of its own, so that the rest of a seed's world stays the same
	if g.chance(.08) {
		s.Settings.Gate.Profiles, s.Settings.Gate.Queries.Preference = &v1alpha1.GateProfiles{}, longJobs
	}
}

package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// subject is one workload with the checks that concern it.
type subject struct {
	wl *kueue.Workload
	// own are the checks that our gates decide, sorted; more than one is a mistake.
	own      []string
	gateName string
	// mk is MultiKueue's check; empty = none.
	mk string
	// config that the MultiKueue check resolves to, and its clusters that are
	// active, since when; why the others are not.
	config   string
	usable   []string
	since    map[string]time.Time
	unusable map[string]string
	// demands on nodes of a workload that MultiKueue does not copy.
	demands []demand
	// updates of the pod sets, written with a check that gets Ready.
	updates []kueue.PodSetUpdate
}

func (s *subject) key() client.ObjectKey { return client.ObjectKeyFromObject(s.wl) }

// check is the entry that we may write.
func (s *subject) check() *kueue.AdmissionCheckState { return kueuestate.FindCheck(s.wl, s.own[0]) }

func (s *subject) connected(cluster string) bool { return slices.Contains(s.usable, cluster) }

func (s *subject) placed() string { return kueuestate.PlacedCluster(s.wl, s.own, s.mk) }

// mismatch between the configuration that MultiKueue's check resolves to and the
// one that the gate keeps; empty = none. The gate's would not protect what runs.
func (s *subject) mismatch(g registry.Gate) string {
	mk := g.Spec.MultiKueue
	if mk == nil || s.mk == "" || mk.ConfigName == s.config {
		return ""
	}
	return fmt.Sprintf("admission check %s uses MultiKueueConfig %s, the gate keeps %s: let both name the same", s.mk, s.config, mk.ConfigName)
}

func (r *Reconciler) gather(ctx context.Context, wl *kueue.Workload) (*subject, error) {
	s := &subject{wl: wl, since: map[string]time.Time{}, unusable: map[string]string{}}
	gates := map[string]string{}
	for _, entry := range wl.Status.AdmissionChecks {
		check := &kueue.AdmissionCheck{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: string(entry.Name)}, check); client.IgnoreNotFound(err) != nil {
			return nil, err
		} else if err != nil {
			continue
		}
		if name, ok := kueuestate.GateOf(check); ok {
			s.own, gates[check.Name] = append(s.own, check.Name), name
		}
		if name, ok := kueuestate.MultiKueueConfigOf(check); ok {
			s.mk, s.config = check.Name, name
		}
	}
	slices.Sort(s.own)
	if len(s.own) > 0 {
		s.gateName = gates[s.own[0]]
	}
	if s.mk == "" {
		return s, r.gatherDemands(ctx, s)
	}
	return s, r.gatherClusters(ctx, s)
}

func (r *Reconciler) gatherClusters(ctx context.Context, s *subject) error {
	config := &kueue.MultiKueueConfig{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: s.config}, config); err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, name := range config.Spec.Clusters {
		cluster := &kueue.MultiKueueCluster{}
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, cluster)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err != nil {
			cluster = nil
		}
		if why := kueuestate.DisconnectedReason(config, name, cluster); why != "" {
			s.unusable[name] = why
		} else {
			s.usable = append(s.usable, name)
			s.since[name] = apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive).LastTransitionTime.Time
		}
	}
	return nil
}

// facts of the workload under a gate.
func (r *Reconciler) facts(ctx context.Context, s *subject, spec *v1alpha1.PlacementGateSpec) shape.Facts {
	facts := shape.FactsOf(s.wl, shape.OptionsOf(spec, func(name string) map[string]string {
		flavor := &kueue.ResourceFlavor{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, flavor); err != nil {
			return nil
		}
		return flavor.Spec.NodeLabels
	}))
	facts.Remote = s.mk != ""
	facts.Preempts = facts.Remote && r.preempts(ctx, facts.ClusterQueue)
	return facts
}

// candidates are the gate's clusters with their answers, judged usable or not
// by MultiKueue's configuration where the workload has one.
func candidates(s *subject, g registry.Gate, answers map[string]querycache.ClusterResult) []gate.Candidate {
	list := make([]gate.Candidate, 0, len(g.Clusters))
	for _, c := range g.Clusters {
		a := answers[c.Name]
		candidate := gate.Candidate{Name: c.Name, Scores: c.Scores, SampledAt: a.SampledAt, Shapes: a.Shapes, Conditions: a.Conditions}
		if s.mk != "" && !s.connected(c.Name) {
			candidate.Unusable = s.unusable[c.Name]
			if candidate.Unusable == "" {
				candidate.Unusable = "is not in MultiKueueConfig " + s.config
			}
		}
		if s.pins(g) {
			candidate.Unusable = s.contradicts(g.Spec.PodSetUpdates, c.Name)
		}
		list = append(list, candidate)
	}
	return list
}

// specOf a gate, read from the API.
func (r *Reconciler) specOf(ctx context.Context, name string) (v1alpha1.PlacementGateSpec, bool) {
	g := &v1alpha1.PlacementGate{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, g); err != nil {
		return v1alpha1.PlacementGateSpec{}, false
	}
	return g.Spec, true
}

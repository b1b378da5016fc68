package world

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"

	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// ocm is the scheduler of OCM's placement for one Placement: the clusters whose taints it tolerates, ranked by an
// AddOnPlacementScore with weight 5 and by Steady with weight 1, in Exact mode.
type ocm struct {
	world *World
	// lostAt is when OCM lost the agents of clusters, and tainted them.
	lostAt map[string]time.Time
	// decided are the clusters of the last decision.
	decided []string
	pending bool
}

// changed decides again soon. Expiry of a score does not wake the scheduler. OCM also decides every 10 minutes, when its
// informers repeat all objects: if all scores have expired by then, Steady leaves the decision as it is.
func (o *ocm) changed() {
	if o.pending {
		return
	}
	o.pending = true
	o.world.loop.After(o.world.dice.between(10*time.Millisecond, 600*time.Millisecond, "ocm"), func() {
		o.pending = false
		o.decide()
	})
}

func (o *ocm) decide() {
	w := o.world
	scores := map[string]int64{}
	var names []string
	for _, c := range w.clusters {
		if !o.tolerates(c.spec.Name) {
			continue
		}
		names = append(names, c.spec.Name)
		scores[c.spec.Name] = 5 * o.score(c.spec.Name)
		if slices.Contains(o.decided, c.spec.Name) {
			scores[c.spec.Name] += 100
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
	if n := w.settings.NumberOfClusters; n > 0 && len(names) > n {
		names = names[:n]
	}
	slices.Sort(names)
	if o.decided != nil && slices.Equal(names, o.decided) {
		return
	}
	o.decided = names
	o.write(names)
	w.note("OCM decides %v", names)
}

// tolerates reports whether the Placement may decide a cluster.
func (o *ocm) tolerates(cluster string) bool {
	at, isLost := o.lostAt[cluster]
	return !isLost || o.world.loop.Now().Sub(at) < o.world.settings.Toleration
}

// score is the published score, or 0 if it is missing or has expired.
func (o *ocm) score(cluster string) int64 {
	s := hub.Get[*clusterv1alpha1.AddOnPlacementScore](o.world.objects, types.NamespacedName{Namespace: cluster, Name: policyName})
	if o.world.settings.Score == "" || s == nil {
		return 0
	}
	if until := s.Status.ValidUntil; until != nil && until.Time.Before(o.world.loop.Now()) {
		return 0
	}
	for _, item := range s.Status.Scores {
		if item.Name == scoreName {
			return int64(item.Value)
		}
	}
	return 0
}

func (o *ocm) write(names []string) {
	w := o.world
	var decisions []clusterv1beta1.ClusterDecision
	for _, name := range names {
		decisions = append(decisions, clusterv1beta1.ClusterDecision{ClusterName: name})
	}
	key := types.NamespacedName{Namespace: namespace, Name: gateName + "-decision-1"}
	found, err := hub.Update(w.objects, key, "ocm", func(d *clusterv1beta1.PlacementDecision) bool {
		d.Status.Decisions = decisions
		return true
	})
	if err == nil && found {
		return
	}
	w.create(&clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{clusterv1beta1.PlacementLabel: gateName}},
		Status: clusterv1beta1.PlacementDecisionStatus{Decisions: decisions}})
}

// setAvailable writes whether the hub hears from a cluster. One that is lost for longer than the Placement tolerates
// leaves the decision.
func (o *ocm) setAvailable(cluster string, available bool) {
	status := metav1.ConditionTrue
	if !available {
		status = metav1.ConditionUnknown
	}
	_, _ = hub.Update(o.world.objects, types.NamespacedName{Name: cluster}, "ocm", func(c *clusterv1.ManagedCluster) bool {
		return apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable, Status: status, Reason: "Lease", LastTransitionTime: o.world.kueue.stamp()})
	})
	delete(o.lostAt, cluster)
	if !available {
		o.lostAt[cluster] = o.world.loop.Now()
		o.world.loop.After(o.world.settings.Toleration, o.changed) // OCM requeues the Placement for this time
	}
	o.changed()
}

// makePlacement gives half of the Placements the tolerations of operator/docs/gate.md.
func makePlacement(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x706c6163))} // of its own, so that the rest of a seed's world stays the same
	if g.chance(.5) {
		s.Settings.Toleration = 300 * time.Second
	}
}

package world

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// RightQuota is the invariant that the Cohort of a CapacityPolicy has the usable devices of the fleet, or what is
// reserved if that is more. It may be wrong for as long as the policy waits before it changes a quota.
const RightQuota Invariant = "RightQuota"

// capacityPolicy is the name of the world's CapacityPolicy.
const capacityPolicy = "fleet"

// CapacityPolicy is a policy that measures the devices of each model for a Cohort.
func CapacityPolicy(cohort string, models ...string) *v1alpha1.CapacityPolicySpec {
	spec := &v1alpha1.CapacityPolicySpec{CohortName: cohort, Mode: v1alpha1.ModeEnforce}
	for _, model := range models {
		sum := func(metric string) string {
			return fmt.Sprintf("sum by (cluster) (cluster_resource_model:plimsoll_%s_devices:sum{resource=%q, model=%q})", metric, defaultResource, model)
		}
		spec.Quotas = append(spec.Quotas, v1alpha1.MeasuredQuota{Flavor: FlavorOf(model), Resource: defaultResource, Query: sum("usable"), UnhealthyQuery: sum("unhealthy")})
	}
	return spec
}

// createCapacityPolicy creates the CapacityPolicy of the settings.
func (w *World) createCapacityPolicy() {
	if w.settings.Capacity == nil {
		return
	}
	spec := *w.settings.Capacity.DeepCopy()
	spec.SourceRef = v1alpha1.LocalReference{Name: sourceName}
	w.create(&v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: capacityPolicy}, Spec: spec})
	w.kueue.quota.measured = spec.CohortName
}

// resourceGroups are the quotas of a queue on the hub, as its ClusterQueue states them.
func (q *quota) resourceGroups(queue *Queue) []kueue.ResourceGroup {
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{defaultResource}}
	for _, f := range q.flavors {
		if n, has := q.queues[queue.Name].nominal[f.name]; has && f.resource == defaultResource {
			group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(f.name),
				Resources: []kueue.ResourceQuota{{Name: defaultResource, NominalQuota: *resource.NewQuantity(n, resource.DecimalSI)}}})
		}
	}
	return []kueue.ResourceGroup{group}
}

// cohortChanged makes the quota of a Cohort that of Kueue on the hub.
func (w *World) cohortChanged(c *kueue.Cohort) {
	quotas := map[string]int64{}
	for _, group := range c.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			quotas[string(f.Name)] = f.Resources[0].NominalQuota.Value()
		}
	}
	w.note("cohort %s has the quotas %v", c.Name, quotas)
	w.kueue.quota.cohorts[c.Name] = quotas
	w.kueue.schedule()
}

// reportReservations writes what is reserved to the status of the ClusterQueues, some time after a change.
func (w *World) reportReservations() {
	if w.settings.Capacity == nil || w.reporting {
		return
	}
	w.reporting = true
	w.loop.After(w.dice.between(100*time.Millisecond, time.Second, "reservations"), func() {
		w.reporting = false
		used := w.kueue.workloads.usage()
		for i := range w.Spec.Queues {
			name := w.Spec.Queues[i].Name
			var flavors []kueue.FlavorUsage
			for _, f := range w.kueue.quota.flavors {
				flavors = append(flavors, kueue.FlavorUsage{Name: kueue.ResourceFlavorReference(f.name), Resources: []kueue.ResourceUsage{
					{Name: corev1.ResourceName(f.resource), Total: *resource.NewQuantity(used[name][f.name], resource.DecimalSI)}}})
			}
			_, _ = hub.Update(w.objects, types.NamespacedName{Name: name}, "kueue", func(cq *kueue.ClusterQueue) bool {
				cq.Status.FlavorsReservation = flavors
				return true
			})
		}
	})
}

// checkQuota reports a quota of the policy's Cohort that has been wrong for too long.
func (w *World) checkQuota(isCalm bool) {
	policy := w.settings.Capacity
	if policy == nil {
		return
	}
	wrong := w.wrongQuota(policy)
	switch {
	case !isCalm || wrong == "":
		w.quotaWrongSince = time.Time{}
	case w.quotaWrongSince.IsZero():
		w.quotaWrongSince = w.loop.Now()
	default:
		period := time.Duration(max(policy.PeriodSeconds, 10)) * time.Second
		bound := time.Duration(ptr.Deref(policy.Advanced.LowerAfterSeconds, 300))*time.Second + 3*period + truthLag
		if w.loop.Now().Sub(w.quotaWrongSince) > bound {
			w.broken(RightQuota, "", "%s, for longer than %s", wrong, bound)
		}
	}
}

// wrongQuota says which quota is not that of the usable devices; empty = none.
func (w *World) wrongQuota(policy *v1alpha1.CapacityPolicySpec) string {
	devices, reserved := map[string]int64{}, map[string]int64{}
	for _, c := range w.clusters {
		for _, n := range c.nodes {
			if n.ready && n.pool.isUsable() {
				devices[FlavorOf(n.pool.Model)] += n.pool.Devices - n.unusable
			}
		}
	}
	for name, byFlavor := range w.kueue.workloads.usage() {
		for flavor, n := range byFlavor {
			if w.kueue.quota.queues[name].spec.Cohort == policy.CohortName && !policy.Advanced.LowerBelowReserved {
				reserved[flavor] += n
			}
		}
	}
	for i := range policy.Quotas {
		f := policy.Quotas[i].Flavor
		if quota := w.kueue.quota.cohorts[policy.CohortName][f]; quota < devices[f] || quota > max(devices[f], reserved[f]) {
			return fmt.Sprintf("the Cohort has a quota of %d for %s: %d devices are usable, %d reserved", quota, f, devices[f], reserved[f])
		}
	}
	return ""
}

// makeCapacity gives some worlds a CapacityPolicy, whose Cohort has all quota of the queues.
func makeCapacity(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x63617061))} // of its own, so that the rest of a seed's world stays the same
	if !g.chance(.08) {
		return
	}
	policy := CapacityPolicy("fleet", modelsOf(s.Clusters)...)
	policy.PeriodSeconds, policy.Advanced.LowerAfterSeconds = oneOf[int32](g, 10, 30, 60), ptr.To(oneOf[int32](g, 30, 60, 300))
	policy.Advanced.LowerBelowReserved = g.chance(.2)
	s.Settings.Capacity = policy
	for i := range s.Queues {
		if q := &s.Queues[i]; s.Settings.tries(q.Name) || s.Settings.Trial == nil {
			q.Cohort, q.Nominal = policy.CohortName, map[string]int64{}
		}
	}
}

package placementgate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/membership"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// configuration is the MultiKueue configuration that a gate should have.
type configuration struct {
	// configured is the condition Configured after the configuration is written.
	configured condition.Decision
	// members of the MultiKueueConfig. Empty: the gate writes nothing.
	members []string
	// truncated clusters are decided, but the MultiKueueConfig has no free place for them.
	truncated []string
	// leaving are members to which no workload may be sent any more.
	leaving []string
	// create and change are the MultiKueueClusters to write, by name.
	create []*kueue.MultiKueueCluster
	change []clusterChange
}

// minMembershipPeriod is the shortest time between two gate rounds. A cluster
// without workloads leaves after SteadyRounds of them: until then, Kueue must have removed the
// copies that a workload left there when it lost its quota.
const minMembershipPeriod = (timing.CopyCleanup + timing.MaxCacheLag) / membership.SteadyRounds

// decideConfiguration decides the MultiKueueConfig and the MultiKueueClusters of a gate. It
// updates the membership history.
func decideConfiguration(in *input, history *membership.History, now time.Time) configuration {
	if in.gate.Spec.MultiKueue == nil {
		return configuration{configured: condition.True(v1alpha1.ReasonNotWanted, "spec.multiKueue is not set: the gate maintains no MultiKueueConfig")}
	}
	if problem := describeForeignConfig(in.gate, in.config); problem != "" {
		return configuration{configured: condition.False(v1alpha1.ReasonNotOurs, problem)}
	}
	var current []string
	if in.config != nil {
		current = in.config.Spec.Clusters
	} else {
		current = clustersInUse(in)
	}
	settings := membership.Settings{Period: max(gate.PeriodOf(&in.gate.Spec), minMembershipPeriod), Ranked: !in.nominate}
	if in.nominate {
		settings.Requested = in.requested
	}
	plan := membership.Plan(current, rankClusters(in, now), in.inUse, history, settings, now)
	if len(plan.Clusters) == 0 {
		return configuration{configured: condition.False(v1alpha1.ReasonNoDecisions,
			noDecisionsMessage(in)+"; a MultiKueueConfig must contain at least one cluster, so the gate creates none")}
	}
	want := configuration{members: plan.Clusters, truncated: plan.Truncated, leaving: plan.Leaving, configured: decideConfigured(in, plan)}
	want.create, want.change = decideClusters(in, plan.Clusters)
	return want
}

// clustersInUse returns the clusters with workloads, sorted.
func clustersInUse(in *input) []string {
	clusters := slices.Sorted(maps.Keys(in.inUse))
	return slices.DeleteFunc(clusters, func(name string) bool { return !in.inUse[name] })
}

// describeForeignConfig states who maintains the MultiKueueConfig and what to do, if the
// gate does not maintain it. Such a gate admits no workload: it can't keep the nominated
// clusters in a configuration that it must not change.
func describeForeignConfig(g *v1alpha1.PlacementGate, config *kueue.MultiKueueConfig) string {
	if config == nil {
		return ""
	}
	owner := ownerOf(config)
	state := "belongs to PlacementGate " + owner
	switch owner {
	case g.Name:
		return ""
	case "":
		state = "was not created by a PlacementGate"
	}
	return fmt.Sprintf("MultiKueueConfig %s %s, so gate %s neither changes it nor admits workloads; set spec.multiKueue.configName to another name",
		config.Name, state, g.Name)
}

// ownerOf returns the name of the gate that created an object. It is empty if no gate did.
func ownerOf(obj client.Object) string { return obj.GetLabels()[v1alpha1.ManagedByLabel] }

// rankClusters returns the decided clusters with their preferred scores, in the order of
// the Placement's decisions.
func rankClusters(in *input, now time.Time) []membership.Ranked {
	ranked := make([]membership.Ranked, 0, len(in.clusters))
	for _, c := range in.clusters {
		ranked = append(ranked, membership.Ranked{Name: c.Name, Points: gate.Preferred(c.Scores, in.gate.Spec.Scores, now)})
	}
	return ranked
}

// decideConfigured decides the condition Configured of a gate that maintains its
// MultiKueueConfig.
func decideConfigured(in *input, plan membership.Result) condition.Decision {
	name := in.gate.Spec.MultiKueue.ConfigName
	d := condition.True(v1alpha1.ReasonWritten, fmt.Sprintf("MultiKueueConfig %s contains %s", name, strings.Join(plan.Clusters, ", ")))
	if len(plan.Truncated) > 0 {
		d = condition.False(v1alpha1.ReasonClustersTruncated, fmt.Sprintf(
			"MultiKueueConfig %s contains the maximum of %d clusters; %s; left out: %s",
			name, membership.MaxClusters, truncationAdvice(in), strings.Join(plan.Truncated, ", ")))
	}
	if foreign := foreignClusters(in, plan.Clusters); len(foreign) > 0 {
		d.Message += "; this gate did not create these MultiKueueClusters and does not change them: " + strings.Join(foreign, ", ")
	}
	if unused := unusedClusters(in, plan.Clusters); len(unused) > 0 {
		d.Message += fmt.Sprintf("; Kueue stays connected to %s, which the configuration no longer contains, until \"kubectl plimsoll release %s --unused\"",
			strings.Join(unused, ", "), in.gate.Name)
	}
	return d
}

func truncationAdvice(in *input) string {
	if in.nominate {
		return "another cluster takes the place of an unused one once a workload fits nowhere else"
	}
	return "let the Placement select fewer clusters"
}

// notWritten is the condition Configured after a failed write.
func notWritten(err error) condition.Decision {
	return condition.False(v1alpha1.ReasonWriteFailed, "the MultiKueue configuration could not be written: "+err.Error())
}

// applyConfiguration writes the MultiKueueClusters and then the MultiKueueConfig that names
// them. They have no ownerReference: garbage collection would evict the workloads on the
// clusters. A cluster that can't be created does not become a member, and delays no other.
func (r *Reconciler) applyConfiguration(ctx context.Context, in *input, want configuration) error {
	if len(want.members) == 0 {
		return nil
	}
	var errs []error
	for _, cluster := range want.create {
		if err := r.createCluster(ctx, in.gate, cluster); err != nil {
			errs = append(errs, err)
			want.members = withoutNewMember(in, want.members, cluster.Name)
		}
	}
	for _, change := range want.change {
		errs = append(errs, r.changeCluster(ctx, in.gate, change))
	}
	switch {
	case len(want.members) == 0:
	case in.config == nil:
		errs = append(errs, r.createConfig(ctx, in.gate, want))
	default:
		errs = append(errs, r.changeConfig(ctx, in, want))
	}
	return errors.Join(errs...)
}

// withoutNewMember returns the members without a cluster, unless the configuration contains it
// already or, if the configuration was deleted, workloads use it: Kueue evicts the workloads on a
// cluster that is not a member.
func withoutNewMember(in *input, members []string, cluster string) []string {
	if in.inUse[cluster] || in.config != nil && slices.Contains(in.config.Spec.Clusters, cluster) {
		return members
	}
	return slices.DeleteFunc(slices.Clone(members), func(c string) bool { return c == cluster })
}

func (r *Reconciler) createConfig(ctx context.Context, g *v1alpha1.PlacementGate, want configuration) error {
	config := &kueue.MultiKueueConfig{
		ObjectMeta: metav1.ObjectMeta{Name: g.Spec.MultiKueue.ConfigName, Labels: map[string]string{v1alpha1.ManagedByLabel: g.Name}},
		Spec:       kueue.MultiKueueConfigSpec{Clusters: want.members},
	}
	logger := log.FromContext(ctx).WithValues("gate", g.Name, "config", config.Name)
	err := r.client.Create(ctx, config)
	switch {
	case apierrors.IsAlreadyExists(err):
		// The cache is stale. The watch event of the existing object reconciles the gate.
		logger.V(1).Info("MultiKueueConfig already exists")
		return nil
	case err != nil:
		return fmt.Errorf("create MultiKueueConfig %s: %w", config.Name, err)
	}
	logger.Info("MultiKueueConfig created", "clusters", want.members, "truncated", want.truncated)
	return nil
}

func (r *Reconciler) changeConfig(ctx context.Context, in *input, want configuration) error {
	if slices.Equal(in.config.Spec.Clusters, want.members) {
		return nil
	}
	config := in.config.DeepCopy()
	config.Spec.Clusters = want.members
	if err := r.client.Patch(ctx, config, client.MergeFromWithOptions(in.config, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patch MultiKueueConfig %s: %w", config.Name, err)
	}
	log.FromContext(ctx).Info("MultiKueueConfig changed", "gate", in.gate.Name, "config", config.Name,
		"clusters", want.members, "before", in.config.Spec.Clusters, "truncated", want.truncated)
	r.recorder.Eventf(in.gate, config, corev1.EventTypeNormal, "MultiKueueConfigChanged", "Configure",
		"MultiKueueConfig %s now contains %s", config.Name, strings.Join(want.members, ", "))
	return nil
}

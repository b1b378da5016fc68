package placementgate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/membership"
)

// outcome of writing the configuration, as a condition.
type outcome struct {
	status          metav1.ConditionStatus
	reason, message string
}

// configure writes the gate's MultiKueueClusters and then its MultiKueueConfig.
// Neither has an ownerReference: collecting them would evict what runs there.
func (r *Reconciler) configure(ctx context.Context, in *input) (outcome, error) {
	mk := in.gate.Spec.MultiKueue
	if mk == nil {
		return outcome{metav1.ConditionTrue, "NotWanted", "the gate states no multiKueue"}, nil
	}
	if why := foreign(in.gate, in.config); why != "" {
		return outcome{metav1.ConditionFalse, reasonNotOurs, why}, nil
	}
	var current []string
	if in.config != nil {
		current = in.config.Spec.Clusters
	}
	now := r.opts.Now()
	want := membership.Plan(current, ranked(in, now), in.inUse, r.memory(in.gate.Name), period(&in.gate.Spec), now)
	if len(want.Clusters) == 0 {
		return outcome{metav1.ConditionFalse, "NoDecisions", "nothing is decided, and a MultiKueueConfig can't be empty"}, nil
	}
	foreignClusters, err := r.writeClusters(ctx, in, want.Clusters)
	if err != nil {
		return outcome{}, err
	}
	if err := r.writeConfig(ctx, in, want.Clusters); err != nil {
		return outcome{}, err
	}
	return summary(in, want, foreignClusters), nil
}

// reasonNotOurs: somebody else keeps the MultiKueueConfig that the gate names.
const reasonNotOurs = "NotOurs"

// foreign says whose the existing configuration is and what to do, if it is not this
// gate's. Such a gate decides nothing: what it does not keep it can't hold together.
func foreign(g *v1alpha1.PlacementGate, config *kueue.MultiKueueConfig) string {
	if config == nil {
		return ""
	}
	owner := "belongs to PlacementGate " + config.Labels[v1alpha1.ManagedByLabel]
	switch config.Labels[v1alpha1.ManagedByLabel] {
	case g.Name:
		return ""
	case "":
		owner = "was not created by a gate"
	}
	return fmt.Sprintf("MultiKueueConfig %s %s and is left alone: name another in spec.multiKueue.configName", config.Name, owner)
}

// ranked are the decided clusters by their preferred scores, in the order of the
// decisions where no score tells them apart.
func ranked(in *input, now time.Time) []membership.Ranked {
	list := make([]membership.Ranked, 0, len(in.clusters))
	for _, c := range in.clusters {
		list = append(list, membership.Ranked{Name: c.Name, Points: gate.Preferred(c.Scores, in.gate.Spec.Policies, now)})
	}
	return list
}

func summary(in *input, want membership.Result, foreignClusters []string) outcome {
	name := in.gate.Spec.MultiKueue.ConfigName
	o := outcome{metav1.ConditionTrue, "Written", fmt.Sprintf("MultiKueueConfig %s holds %s", name, strings.Join(want.Clusters, ", "))}
	if len(foreignClusters) > 0 {
		o.message += "; not created by this gate and left alone: MultiKueueClusters " + strings.Join(foreignClusters, ", ")
	}
	if len(want.Truncated) > 0 {
		o.status, o.reason = metav1.ConditionFalse, "ClustersTruncated"
		o.message = fmt.Sprintf("MultiKueueConfig %s is full at %d clusters; left out: %s", name, membership.MaxClusters, strings.Join(want.Truncated, ", "))
	}
	if left := leftOver(in, want.Clusters); len(left) > 0 {
		o.message += fmt.Sprintf("; Kueue stays connected to %s, which it no longer holds, until \"kubectl plimsoll release %s --unused\"",
			strings.Join(left, ", "), in.gate.Name)
	}
	o.message = gate.Truncate(o.message)
	return o
}

func (r *Reconciler) writeConfig(ctx context.Context, in *input, clusters []string) error {
	if in.config == nil {
		config := &kueue.MultiKueueConfig{
			ObjectMeta: metav1.ObjectMeta{Name: in.gate.Spec.MultiKueue.ConfigName, Labels: map[string]string{v1alpha1.ManagedByLabel: in.gate.Name}},
			Spec:       kueue.MultiKueueConfigSpec{Clusters: clusters},
		}
		return client.IgnoreAlreadyExists(r.client.Create(ctx, config))
	}
	if slices.Equal(in.config.Spec.Clusters, clusters) {
		return nil
	}
	config := in.config.DeepCopy()
	config.Spec.Clusters = clusters
	if err := r.client.Patch(ctx, config, client.MergeFromWithOptions(in.config, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	r.recorder.Eventf(in.gate, config, "Normal", "MultiKueueConfigChanged", "Configure", "MultiKueueConfig %s: %s", config.Name, strings.Join(clusters, ", "))
	return nil
}

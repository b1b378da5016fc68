package placementgate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// writeClusters makes the missing MultiKueueClusters of the decided clusters that the
// configuration holds, gives those that are this gate's the credentials that it
// states, and names the others.
func (r *Reconciler) writeClusters(ctx context.Context, in *input, held []string) ([]string, error) {
	creds := in.gate.Spec.MultiKueue.Credentials
	if creds.Type == v1alpha1.CredentialsExisting {
		return nil, nil
	}
	var others []string
	for _, c := range in.clusters {
		existing, ok := in.mkClusters[c.Name]
		switch {
		case !slices.Contains(held, c.Name):
		case !ok:
			if err := r.client.Create(ctx, newCluster(in.gate.Name, c.Name, creds)); client.IgnoreAlreadyExists(err) != nil {
				return nil, err
			}
		case existing.Labels[v1alpha1.ManagedByLabel] == "":
			others = append(others, c.Name)
		case existing.Labels[v1alpha1.ManagedByLabel] != in.gate.Name:
			others = append(others, fmt.Sprintf("%s (of PlacementGate %s)", c.Name, existing.Labels[v1alpha1.ManagedByLabel]))
		}
	}
	for name, existing := range in.mkClusters {
		if existing.Labels[v1alpha1.ManagedByLabel] != in.gate.Name {
			continue
		}
		if err := r.reconnect(ctx, in, existing, newCluster(in.gate.Name, name, creds).Spec.ClusterSource); err != nil {
			return nil, err
		}
	}
	return others, nil
}

// reconnect a MultiKueueCluster by other credentials than it has.
func (r *Reconciler) reconnect(ctx context.Context, in *input, existing *kueue.MultiKueueCluster, source kueue.ClusterSource) error {
	if equality.Semantic.DeepEqual(existing.Spec.ClusterSource, source) {
		return nil
	}
	cluster := existing.DeepCopy()
	cluster.Spec.ClusterSource = source
	if err := r.client.Patch(ctx, cluster, client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	r.recorder.Eventf(in.gate, cluster, "Normal", "MultiKueueClusterChanged", "Configure", "MultiKueueCluster %s has the credentials that the gate states now", cluster.Name)
	return nil
}

func newCluster(gateName, name string, creds v1alpha1.Credentials) *kueue.MultiKueueCluster {
	cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.ManagedByLabel: gateName}}}
	credential := func(byDefault string) string {
		return strings.ReplaceAll(cmp.Or(creds.NameTemplate, byDefault), "{cluster}", name)
	}
	if creds.Type == v1alpha1.CredentialsClusterProfile {
		cluster.Spec.ClusterSource.ClusterProfileRef = &kueue.ClusterProfileReference{Name: credential("{cluster}")}
	} else {
		cluster.Spec.ClusterSource.KubeConfig = &kueue.KubeConfig{Location: credential("{cluster}-kubeconfig"), LocationType: kueue.SecretLocationType}
	}
	return cluster
}

// leftOver are the gate's MultiKueueClusters that its configuration does not hold.
func leftOver(in *input, held []string) []string {
	var left []string
	for name, cluster := range in.mkClusters {
		if cluster.Labels[v1alpha1.ManagedByLabel] == in.gate.Name && !slices.Contains(held, name) {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	return left
}

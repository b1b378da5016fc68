package placementgate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
)

// clusterChange is a MultiKueueCluster with other credentials than it has.
type clusterChange struct{ before, after *kueue.MultiKueueCluster }

// decideClusters returns the MultiKueueClusters to create and to change, by name:
//   - A member of the configuration that is decided or in use gets a MultiKueueCluster. Without one,
//     Kueue neither sees that the workloads on a cluster in use end nor gives the cluster up. Other
//     clusters get none, because Kueue connects to every MultiKueueCluster.
//   - Every MultiKueueCluster of this gate gets the credentials that its spec states.
//
// The gate never changes a MultiKueueCluster that it did not create.
func decideClusters(in *input, members []string) (create []*kueue.MultiKueueCluster, change []clusterChange) {
	if !writesClusters(in) {
		return nil, nil
	}
	credentials := in.gate.Spec.MultiKueue.Credentials
	for _, member := range slices.Sorted(slices.Values(members)) {
		isDecided := slices.ContainsFunc(in.clusters, func(c gatestate.Cluster) bool { return c.Name == member })
		if in.mkClusters[member] == nil && (isDecided || in.inUse[member]) {
			create = append(create, newCluster(in.gate.Name, member, credentials))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.mkClusters)) {
		before := in.mkClusters[name]
		source := newCluster(in.gate.Name, name, credentials).Spec.ClusterSource
		if ownerOf(before) != in.gate.Name || equality.Semantic.DeepEqual(before.Spec.ClusterSource, source) {
			continue
		}
		after := before.DeepCopy()
		after.Spec.ClusterSource = source
		change = append(change, clusterChange{before: before, after: after})
	}
	return create, change
}

func writesClusters(in *input) bool {
	return in.gate.Spec.MultiKueue.Credentials.Type != v1alpha1.CredentialsExisting
}

// foreignClusters lists the decided members whose MultiKueueCluster another gate or another
// component created, with the name of the gate.
func foreignClusters(in *input, members []string) []string {
	if !writesClusters(in) {
		return nil
	}
	var foreign []string
	for _, c := range in.clusters {
		existing := in.mkClusters[c.Name]
		if existing == nil || !slices.Contains(members, c.Name) {
			continue
		}
		switch owner := ownerOf(existing); owner {
		case in.gate.Name:
		case "":
			foreign = append(foreign, c.Name)
		default:
			foreign = append(foreign, fmt.Sprintf("%s (of PlacementGate %s)", c.Name, owner))
		}
	}
	return foreign
}

// unusedClusters lists the MultiKueueClusters of this gate that are not members of its
// configuration, by name.
func unusedClusters(in *input, members []string) []string {
	var unused []string
	for name, cluster := range in.mkClusters {
		if ownerOf(cluster) == in.gate.Name && !slices.Contains(members, name) {
			unused = append(unused, name)
		}
	}
	slices.Sort(unused)
	return unused
}

func newCluster(gateName, name string, credentials v1alpha1.Credentials) *kueue.MultiKueueCluster {
	cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.ManagedByLabel: gateName}}}
	credentialName := func(defaultTemplate string) string {
		return strings.ReplaceAll(cmp.Or(credentials.NameTemplate, defaultTemplate), "{cluster}", name)
	}
	if credentials.Type == v1alpha1.CredentialsClusterProfile {
		cluster.Spec.ClusterSource.ClusterProfileRef = &kueue.ClusterProfileReference{Name: credentialName("{cluster}")}
	} else {
		cluster.Spec.ClusterSource.KubeConfig = &kueue.KubeConfig{Location: credentialName("{cluster}-kubeconfig"), LocationType: kueue.SecretLocationType}
	}
	return cluster
}

// credentialsOf describes the credentials of a MultiKueueCluster for the log.
func credentialsOf(cluster *kueue.MultiKueueCluster) string {
	switch source := cluster.Spec.ClusterSource; {
	case source.ClusterProfileRef != nil:
		return "ClusterProfile " + source.ClusterProfileRef.Name
	case source.KubeConfig != nil:
		return string(source.KubeConfig.LocationType) + " " + source.KubeConfig.Location
	}
	return ""
}

func (r *Reconciler) createCluster(ctx context.Context, g *v1alpha1.PlacementGate, cluster *kueue.MultiKueueCluster) error {
	logger := log.FromContext(ctx).WithValues("gate", g.Name, "cluster", cluster.Name)
	err := r.client.Create(ctx, cluster)
	switch {
	case apierrors.IsAlreadyExists(err):
		// The cache is stale. The watch event of the existing object reconciles the gate.
		logger.V(1).Info("MultiKueueCluster already exists")
		return nil
	case err != nil:
		return fmt.Errorf("create MultiKueueCluster %s: %w", cluster.Name, err)
	}
	logger.Info("MultiKueueCluster created", "credentials", credentialsOf(cluster))
	return nil
}

func (r *Reconciler) changeCluster(ctx context.Context, g *v1alpha1.PlacementGate, change clusterChange) error {
	cluster := change.after
	if err := r.client.Patch(ctx, cluster, client.MergeFromWithOptions(change.before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patch MultiKueueCluster %s: %w", cluster.Name, err)
	}
	log.FromContext(ctx).Info("MultiKueueCluster changed", "gate", g.Name, "cluster", cluster.Name,
		"credentials", credentialsOf(cluster), "before", credentialsOf(change.before))
	r.recorder.Eventf(g, cluster, corev1.EventTypeNormal, "MultiKueueClusterChanged", "Configure",
		"MultiKueueCluster %s now uses the credentials that the gate states: %s", cluster.Name, credentialsOf(cluster))
	return nil
}

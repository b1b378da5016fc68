package publish

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Owner is the policy that scores belong to.
type Owner struct {
	APIVersion, Kind, Name string
	UID                    types.UID
}

func (o Owner) reference() metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID, Controller: &yes}
}

// owns finds the owner among an object's references. A policy that was deleted and
// made anew under its name owns what it left, and current is false.
func (o Owner) owns(obj client.Object) (owned, current bool) {
	for _, ref := range obj.GetOwnerReferences() {
		if o.named(ref) {
			return true, ref.UID == o.UID
		}
	}
	return false, false
}

// named says that a reference is to the owner, or to the one before it of that name.
func (o Owner) named(ref metav1.OwnerReference) bool {
	return ref.APIVersion == o.APIVersion && ref.Kind == o.Kind && ref.Name == o.Name
}

const (
	byName  = "plimsoll.scores.name"
	byOwner = "plimsoll.scores.owner"
)

// Indices registers the look-ups that a Publisher needs.
func Indices(ctx context.Context, indexer client.FieldIndexer) error {
	score := &clusterv1alpha1.AddOnPlacementScore{}
	if err := indexer.IndexField(ctx, score, byName, func(o client.Object) []string { return []string{o.GetName()} }); err != nil {
		return err
	}
	return indexer.IndexField(ctx, score, byOwner, func(o client.Object) []string {
		var keys []string
		for _, ref := range o.GetOwnerReferences() {
			keys = append(keys, ownerKey(ref.Kind, ref.Name))
		}
		return keys
	})
}

func ownerKey(kind, name string) string { return kind + "/" + name }

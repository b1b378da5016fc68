package publish

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Owner identifies the policy that owns AddOnPlacementScores.
type Owner struct {
	APIVersion, Kind, Name string
	UID                    types.UID
}

// reference returns the owner as the controller of an object.
func (o Owner) reference() metav1.OwnerReference {
	controller := true
	return metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID, Controller: &controller}
}

// owns reports whether the object belongs to the owner. current is false if it belongs
// to an earlier object of the same name: a policy that was deleted and created again
// owns the scores of its predecessor.
func (o Owner) owns(obj client.Object) (owned, current bool) {
	for _, ref := range obj.GetOwnerReferences() {
		if o.matches(ref) {
			return true, ref.UID == o.UID
		}
	}
	return false, false
}

// matches reports whether the reference names the owner, regardless of the UID.
func (o Owner) matches(ref metav1.OwnerReference) bool {
	return ref.APIVersion == o.APIVersion && ref.Kind == o.Kind && ref.Name == o.Name
}

const (
	nameIndex  = "plimsoll.scores.name"
	ownerIndex = "plimsoll.scores.owner"
)

// AddIndexes adds the field indexes of the cache that a Publisher reads.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	score := &clusterv1alpha1.AddOnPlacementScore{}
	if err := indexer.IndexField(ctx, score, nameIndex, func(o client.Object) []string { return []string{o.GetName()} }); err != nil {
		return err
	}
	return indexer.IndexField(ctx, score, ownerIndex, func(o client.Object) []string {
		var keys []string
		for _, ref := range o.GetOwnerReferences() {
			keys = append(keys, ownerKey(ref.Kind, ref.Name))
		}
		return keys
	})
}

func ownerKey(kind, name string) string { return kind + "/" + name }

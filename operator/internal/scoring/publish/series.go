package publish

import (
	"context"
	"encoding/json"
	"maps"

	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SeriesAnnotation on an AddOnPlacementScore has the number of series behind the last
// complete response to each query of the policy, as a JSON object by the key of the query.
// A restarted operator compares partial responses of Thanos with it.
const SeriesAnnotation = "plimsoll.dev/complete-series"

// readSeries returns the counts in the annotation. An annotation that another component has
// damaged counts as absent: the next complete response replaces it.
func readSeries(object *clusterv1alpha1.AddOnPlacementScore) map[string]int64 {
	var series map[string]int64
	if json.Unmarshal([]byte(object.Annotations[SeriesAnnotation]), &series) != nil {
		return nil
	}
	return series
}

// sameSeries reports whether the object has the wanted counts.
func sameSeries(object *clusterv1alpha1.AddOnPlacementScore, want *Desired) bool {
	return len(want.Series) == 0 || maps.Equal(readSeries(object), want.Series)
}

// setSeries sets the annotation.
func setSeries(object *clusterv1alpha1.AddOnPlacementScore, want *Desired) {
	if len(want.Series) == 0 {
		return
	}
	text, _ := json.Marshal(want.Series) // a map of numbers can always be encoded
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[SeriesAnnotation] = string(text)
}

// writeSeries updates the annotation of an existing object. The counts are written before
// the scores: with scores of a later response, they would be too low, and a partial
// response would look complete.
func (p *Publisher) writeSeries(ctx context.Context, want *Desired, live *clusterv1alpha1.AddOnPlacementScore) error {
	if sameSeries(live, want) {
		return nil
	}
	object := &clusterv1alpha1.AddOnPlacementScore{}
	object.Name, object.Namespace, object.Annotations = live.Name, live.Namespace, maps.Clone(live.Annotations)
	before := object.DeepCopy()
	setSeries(object, want)
	return p.Client.Patch(ctx, object, client.MergeFrom(before), FieldOwner)
}

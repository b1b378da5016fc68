package workload

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// newPrerequisiteBench has a gate that tests Secrets. Only cluster2 has the Secret hf.
func newPrerequisiteBench(t *testing.T) *bench {
	b := newBench(t, v1alpha1.PlacementGateSpec{Prerequisites: []v1alpha1.GatePrerequisite{{Kind: v1alpha1.PrerequisiteSecret}}})
	b.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, query.QuerierFunc(func(ctx context.Context, expr string, at time.Time) (query.Result, error) {
		if !strings.Contains(expr, "kube_secret_info") {
			return b.source.Query(ctx, expr, at)
		}
		return query.Result{Samples: []query.Sample{
			{Labels: map[string]string{"cluster": "cluster1", "secret": "ssh"}, Value: 1}, {Labels: map[string]string{"cluster": "cluster2", "secret": "hf"}, Value: 1}}}, nil
	}))
	return b
}

// readingSecret makes the pods of a workload read a Secret, and trims the workload as the
// operator's cache does.
func readingSecret(wl *kueue.Workload, secret string) *kueue.Workload {
	spec := &wl.Spec.PodSets[0].Template.Spec
	spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}}
	kueuestate.Trim(wl)
	return wl
}

func TestWorkloadGoesWhereItsSecretIs(t *testing.T) {
	b := newPrerequisiteBench(t)
	b.create(readingSecret(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), "hf"))
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster2"}) {
		t.Errorf("nominated %v, want cluster2 (%s)", got, b.check().Message)
	}
	b.clock.add(35 * time.Second) // the time after which all other clusters with room are nominated, too
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster2"}) {
		t.Errorf("nominated %v after the time to widen, want cluster2", got)
	}
}

func TestWorkloadWithoutItsSecretWaits(t *testing.T) {
	b := newPrerequisiteBench(t)
	b.create(readingSecret(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), "absent"))
	b.reconcile()
	want := map[string]string{"plimsoll": "Pending no cluster is eligible; cluster1 does not have Secret absent, cluster2 does not have Secret absent", "multikueue": "Pending "}
	if diff := cmp.Diff(want, checkTexts(b.workload())); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
}

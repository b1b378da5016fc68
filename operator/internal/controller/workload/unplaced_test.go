package workload

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestChangedClustersWakeTheirWorkloads(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	for name, change := range map[string]func(*kueue.Workload){
		"waits":         func(*kueue.Workload) {},
		"runs":          func(wl *kueue.Workload) { cluster := "cluster1"; wl.Status.ClusterName = &cluster },
		"without-quota": func(wl *kueue.Workload) { wl.Status.Admission = nil },
		"elsewhere":     func(wl *kueue.Workload) { wl.Status.AdmissionChecks = wl.Status.AdmissionChecks[:1] },
	} {
		wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
		wl.Name, wl.UID = name, types.UID(name)
		change(wl)
		b.create(wl)
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	for _, tc := range []struct {
		name    string
		changed client.Object
		want    []string
	}{
		{"cluster of the configuration", &kueue.MultiKueueCluster{ObjectMeta: named("cluster2")}, []string{"waits"}},
		{"other cluster", &kueue.MultiKueueCluster{ObjectMeta: named("cluster9")}, nil},
		{"configuration", &kueue.MultiKueueConfig{ObjectMeta: named("gpu")}, []string{"waits"}},
		{"other configuration", &kueue.MultiKueueConfig{ObjectMeta: named("tpu")}, nil},
		{"check of the gate", admissionCheck("plimsoll", v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate"), []string{"elsewhere", "waits"}},
		{"other check", admissionCheck("budget", "example.com/budget", "example.com", "Budget"), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, request := range b.unplacedWorkloads(t.Context(), tc.changed) {
				got = append(got, request.Name)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("woke %v, want %v", got, tc.want)
			}
		})
	}
}

// Workloads that wait at a gate are decided in its order, by an early wake-up: 10,000 of them cost no
// more than the first of each line.
func TestChangedClustersWakeWaitingWorkloads(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(nil)
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.reconcile()
	b.wakeUp()
	if requests := b.unplacedWorkloads(t.Context(), &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster2"}}); len(requests) > 0 {
		t.Errorf("woke %v outside of a wake-up", requests)
	}
	check := admissionCheck("plimsoll", v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate")
	if requests := b.unplacedWorkloads(t.Context(), check); len(requests) > 0 {
		t.Errorf("a change of the check woke %v outside of a wake-up", requests)
	}
	check.Spec.Parameters.Name = "another"
	if requests := b.unplacedWorkloads(t.Context(), check); len(requests) != 1 {
		t.Errorf("a check that names another gate woke %v, want the workload: no wake-up of that gate has it", requests)
	}
	b.clock.add(timing.MinWakeUpGap)
	b.refreshes = 0
	if b.engine.Waiting.StartWakeUps(); b.refreshes != 1 {
		t.Errorf("%d refreshes, want one for the line", b.refreshes)
	}
}

// Most workloads of a hub wait for quota, and Kueue updates them often.
func TestWorkloadsWithoutQuotaCostOneRead(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	wl.Status.Admission, wl.Status.Conditions = nil, nil
	b.create(wl)
	reads := 0
	b.client = countReads(b.hub, &reads)
	b.reconcile()
	if reads != 1 {
		t.Errorf("%d reads for a workload without quota, want 1", reads)
	}
}

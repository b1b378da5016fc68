package hub

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const benchWorkloads = 10_000

// newBenchView returns a server with 10,000 workloads and a view with an index: 100 workloads per queue.
func newBenchView(b *testing.B) (*Server, *View, *loop) {
	b.Helper()
	c := &clock{start}
	s, l := NewServer(newScheme(b), c.now), &loop{clock: c}
	admin := s.Client("admin")
	for i := range benchWorkloads {
		wl := newWorkload(fmt.Sprintf("job-%05d", i))
		wl.Spec.QueueName = kueue.LocalQueueName(fmt.Sprintf("queue-%d", i%100))
		status := wl.Status
		if err := admin.Create(b.Context(), wl); err != nil {
			b.Fatal(err)
		}
		wl.Status = status
		if err := admin.Status().Update(b.Context(), wl); err != nil {
			b.Fatal(err)
		}
	}
	v := s.NewView(ViewOptions{Schedule: l.schedule, Transform: func(obj any) (any, error) { obj.(client.Object).SetManagedFields(nil); return obj, nil }})
	queue := func(o client.Object) []string { return []string{string(o.(*kueue.Workload).Spec.QueueName)} }
	if err := v.IndexField(b.Context(), &kueue.Workload{}, "queue", queue); err != nil {
		b.Fatal(err)
	}
	if _, err := v.GetInformer(b.Context(), &kueue.Workload{}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	return s, v, l
}

func benchKey(i int) types.NamespacedName {
	return key(fmt.Sprintf("job-%05d", i*7919%benchWorkloads))
}

func BenchmarkGet(b *testing.B) {
	_, v, _ := newBenchView(b)
	for i := 0; b.Loop(); i++ {
		if err := v.Client().Get(b.Context(), benchKey(i), &kueue.Workload{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkListByIndex(b *testing.B) {
	_, v, _ := newBenchView(b)
	for i := 0; b.Loop(); i++ {
		list := &kueue.WorkloadList{}
		err := v.List(b.Context(), list, client.MatchingFields{"queue": fmt.Sprintf("queue-%d", i%100)}, client.UnsafeDisableDeepCopy)
		if err != nil || len(list.Items) != benchWorkloads/100 {
			b.Fatal(err, len(list.Items))
		}
	}
}

func BenchmarkListAll(b *testing.B) {
	_, v, _ := newBenchView(b)
	for b.Loop() {
		if err := v.List(b.Context(), &kueue.WorkloadList{}, client.UnsafeDisableDeepCopy); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStatusJSONPatch includes the event in the cache of one process.
func BenchmarkStatusJSONPatch(b *testing.B) {
	_, v, l := newBenchView(b)
	for i := 0; b.Loop(); i++ {
		wl := &kueue.Workload{}
		wl.Namespace, wl.Name = "team", benchKey(i).Name
		patch := fmt.Sprintf(`[{"op":"add","path":"/status/admissionChecks/1/state","value":"Ready"},{"op":"add","path":"/status/admissionChecks/1/message","value":"fits on %d"}]`, i)
		if err := v.Client().Status().Patch(b.Context(), wl, client.RawPatch(types.JSONPatchType, []byte(patch)), client.FieldOwner("plimsoll-gate")); err != nil {
			b.Fatal(err)
		}
		l.run(0)
	}
}

func BenchmarkUpdate(b *testing.B) {
	s, _, l := newBenchView(b)
	if err := s.RecordAsApply("kueue-admission", &kueue.Workload{}, "conditions", "admission", "admissionChecks", "clusterName", "nominatedClusterNames"); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		_, err := Update(s, benchKey(i), "kueue-admission", func(wl *kueue.Workload) bool {
			wl.Status.Conditions[0].Message = time.Duration(i).String()
			return true
		})
		if err != nil {
			b.Fatal(err)
		}
		l.run(0)
	}
}

func BenchmarkStatusApply(b *testing.B) {
	_, v, l := newBenchView(b)
	for i := 0; b.Loop(); i++ {
		u := newApplyOf(benchKey(i), i)
		if err := v.Client().Status().Apply(b.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("plimsoll-dispatch"), client.ForceOwnership); err != nil {
			b.Fatal(err)
		}
		l.run(0)
	}
}

func newApplyOf(key types.NamespacedName, i int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"nominatedClusterNames": []any{fmt.Sprint("c", i)}}}}
	u.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	return u
}

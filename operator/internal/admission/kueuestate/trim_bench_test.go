package kueuestate

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// BenchmarkCachedWorkload reports the heap of one cached workload of a training job with 30
// environment variables, 8 volumes and the managedFields of 6 writers.
func BenchmarkCachedWorkload(b *testing.B) {
	for _, tc := range []struct {
		name string
		trim func(*kueue.Workload)
	}{
		{"whole", func(*kueue.Workload) {}},
		{"trimmed", Trim},
	} {
		b.Run(tc.name, func(b *testing.B) {
			const n = 2000
			for b.Loop() {
				before := heap()
				cached := make([]*kueue.Workload, n)
				for i := range cached {
					cached[i] = trainingWorkload(i)
					tc.trim(cached[i])
				}
				b.ReportMetric(float64(heap()-before)/n/1024, "KiB/workload")
				runtime.KeepAlive(cached)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func trainingWorkload(i int) *kueue.Workload {
	c := corev1.Container{Name: "main", Image: fmt.Sprintf("registry.example/train:%d", i), Command: []string{"python"}, Args: []string{"train.py", fmt.Sprint("--run=", i)}}
	for j := range 30 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", j), Value: fmt.Sprintf("a value of usual length %d %d", i, j)})
	}
	pod := corev1.PodSpec{NodeSelector: map[string]string{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}
	for j := range 8 {
		name := fmt.Sprintf("volume-%d-%d", i, j)
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	pod.Containers = []corev1.Container{c}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("job-", i), Namespace: "team-a"}}
	for j := range 6 {
		wl.ManagedFields = append(wl.ManagedFields, metav1.ManagedFieldsEntry{Manager: fmt.Sprint("manager-", j),
			FieldsV1: metav1.NewFieldsV1(fmt.Sprintf("%01500d", i))})
	}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: pod}}}
	return wl
}

//go:build e2e && long

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// A job that ends leaves a JobProfile with what its GPUs measured.
func TestFinishedJobLeavesAProfile(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	patchGate(ctx, t, `{"profiles":{}}`, `{"profiles":null}`)
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			_, err := lab.Hub.Kubectl(ctx, "", "delete", "jobprofile", "profiled", "-n", fleet.Namespace, "--ignore-not-found")
			return err
		})
	})
	submit(ctx, t, fleet.Job{Name: "profiled", Model: fleet.H100, GPUs: 2, Duration: 10 * time.Second, PodLabels: map[string]string{v1alpha1.ProfileLabel: "profiled"}})
	p := v1alpha1.JobProfile{}
	await(ctx, t, "the profile of the job", func(ctx context.Context) error {
		text, err := lab.Hub.Kubectl(ctx, "", "get", "jobprofile", "profiled", "-n", fleet.Namespace, "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(text), &p)
		}
		if err == nil && p.Status.Runs == 0 {
			err = fmt.Errorf("the profile has no run")
		}
		return err
	})
	if p.Status.Runs != 1 || len(p.Status.Models) != 1 || p.Status.Models[0].Model != fleet.H100.Label {
		t.Fatalf("status %+v", p.Status)
	}
	m := p.Status.Models[0]
	for name, v := range map[string]*int64{"duration": m.DurationP50Seconds, "peak memory": m.MemoryPeakP90Bytes, "utilization": m.UtilizationP50Percent, "energy": m.EnergyP50Joules} {
		if v == nil || *v <= 0 {
			t.Errorf("%s is not measured: %+v", name, m)
		}
	}
	if *m.DurationP50Seconds < 10 || *m.DurationP50Seconds > 60 {
		t.Errorf("duration of a pod that ran for 10 s: %d s", *m.DurationP50Seconds)
	}
	t.Logf("%s, limited by %s: %d s, %d MiB, %d%%", m.Class, m.Bottleneck, *m.DurationP50Seconds, *m.MemoryPeakP90Bytes>>20, *m.UtilizationP50Percent)
}

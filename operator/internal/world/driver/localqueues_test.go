//go:build !race

package driver

import (
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/world"
)

// otherNames has queues of the hub whose LocalQueues point to one ClusterQueue with another name on each worker. Its
// quota on cluster1 is for half of the devices.
func otherNames() world.Spec {
	s := world.Spec{Name: "ClusterQueues of workers have other names", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 4, 8), nodes("cluster2", 1, 8)},
		Queues: []world.Queue{{Name: "teamx"}, {Name: "teamy"}}}
	for i := range s.Clusters {
		s.Clusters[i].LocalQueues = map[string]string{"teamx": "gpu", "teamy": "gpu"}
	}
	s.Clusters[0].Quotas = map[string]map[string]int64{"gpu": {h100: 16}}
	for i := range 6 {
		s.Jobs = append(s.Jobs, world.Job{Name: "job" + string(rune('a'+i)), Queue: s.Queues[i%2].Name, At: time.Minute, Devices: 8, Duration: 5 * time.Minute})
	}
	return s
}

// TestLocalQueuesOfWorkers shows that jobs go where the queue to which their LocalQueue points has quota, and no more at a
// time than fit into it.
func TestLocalQueuesOfWorkers(t *testing.T) {
	w := Run(t, otherNames(), Options{Verbose: printLog()})
	if event := "event NotAdmitted on "; strings.Contains(w.Log(), event) {
		t.Errorf("the log has %q: a job was sent to a queue without quota", event)
	}
	for _, p := range w.Problems {
		t.Error(p)
	}
}

// littleCPU has a cluster with many free devices whose queue has quota for the CPU of one job.
func littleCPU() world.Spec {
	s := world.Spec{Name: "quota for little CPU", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 8, 8), nodes("cluster2", 1, 8)}}
	s.Clusters[0].CPUQuota = 12_000
	for i := range 6 {
		s.Jobs = append(s.Jobs, world.Job{Name: "job" + string(rune('a'+i)), At: time.Minute, Devices: 2, CPU: 8000, Duration: 5 * time.Minute})
	}
	return s
}

// TestQuotaForCPU shows that no more jobs go to a cluster at a time than the queue there has quota for their CPU.
func TestQuotaForCPU(t *testing.T) {
	w := Run(t, littleCPU(), Options{Verbose: printLog()})
	if event := "event NotAdmitted on "; strings.Contains(w.Log(), event) {
		t.Errorf("the log has %q: a job was sent to a queue without quota", event)
	}
	if message := "quota of cpu for "; !strings.Contains(w.Log(), message) {
		t.Errorf("the log does not have %q", message)
	}
	for _, p := range w.Problems {
		t.Error(p)
	}
}

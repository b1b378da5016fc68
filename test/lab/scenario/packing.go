package scenario

import (
	"fmt"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

// packing gives three clusters a node with 4 shared GPUs. By its profile, a job uses 60% of a device: only the idle devices
// of cluster1 stay at 70% or less with it. A mean of each cluster would send it to cluster3.
func packing(s *script) string {
	const half = "cluster1-shared"
	for _, shared := range []struct {
		cluster     string
		node        fleet.Node
		pods        int // that other queues run, one on each device
		mean        float64
		lowDevices  float64 // with headroom for a job of 30%, which is what one without a profile counts as
		description string
	}{
		{"cluster1", fleet.SharedNode(half, 1, 1, 0, 0), 2, 50, 2, "2 at 100%, 2 idle"},
		{"cluster2", fleet.SharedNode("cluster2-shared", 0.5, 0.5, 0.5, 0.5), 4, 50, 0, "all at 50%"},
		{"cluster3", fleet.SharedNode("cluster3-shared", 0.2, 0.2, 0.2, 0.2), 4, 20, 4, "all at 20%"},
	} {
		s.addsNode(shared.cluster, shared.node)
		s.occupies(shared.cluster, shared.node.Name, shared.pods)
		s.log("%s shares 4 GPUs: %s", shared.node.Name, shared.description)
		s.shows(fleet.MeanUtilization(shared.node.Name), shared.mean)
		s.shows(fleet.DevicesWithHeadroom(shared.node.Name, 0.3), shared.lowDevices)
	}
	s.createsGatedQueue(fleet.PackingQueue)
	s.deleteAtEnd("jobprofile/heavy")
	story.Must(s.fleet.CreateProfile(s.ctx, "heavy", fleet.H100, 60))
	s.log("earlier runs of the profile heavy used 60%% of a device")
	for i := range 2 {
		s.startsOn(sharedJob(fmt.Sprintf("heavy-%d", i+1), "heavy"), "cluster1")
	}
	// The pods of others and the two jobs hold one replica of each device.
	s.shows(fmt.Sprintf(`sum(device_dimension:plimsoll_free_share:placeable{node=%q,dimension="shares"} == 3)`, half), 4*3)
	cluster := s.starts(sharedJob("unknown", ""))
	story.Require(cluster != "cluster2", "unknown runs on %s, whose devices have no headroom for a job without a profile", cluster)
	story.Must(s.fleet.SetUtilization(half, 1, 1, 1, 1))
	s.log("the jobs use all of their devices")
	s.shows(fleet.DevicesWithHeadroom(half, 0.6), 0)
	s.submits(sharedJob("heavy-3", "heavy"))
	s.waits("heavy-3", "cluster1 has no series for requirement packing")
	s.addsNode("cluster2", fleet.SharedNode("cluster2-idle", 0, 0))
	s.log("a node with idle devices joins cluster2")
	s.runsOn("heavy-3", "cluster2")
	return "two heavy jobs went to the cluster with idle devices, not to the one with the lowest mean; the third waited until another cluster had idle devices"
}

// sharedJob returns a job with a replica of a time-sliced GPU, and the profile of a name; empty = none.
func sharedJob(name, profile string) fleet.Job {
	j := fleet.Job{Name: name, Model: fleet.H100, GPUs: 1, Resource: fleet.SharedGPUResource, Queue: fleet.PackingQueue.Name}
	if profile != "" {
		j.PodLabels = map[string]string{v1alpha1.ProfileLabel: profile}
	}
	return j
}

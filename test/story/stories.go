package story

import (
	"fmt"
	"strings"
	"time"
)

// All lists the scenarios that run on both stages.
var All = []Story{
	{"burst", "12 small jobs at once fill several clusters, each job runs once", burst},
	{"whole-nodes", "jobs go only where a whole node is free, and the others wait and say why", wholeNodes},
	{"gpu-lost", "a node with a lost GPU gets no job for the whole node, until the GPU is back", gpuLost},
	{"cpu-poor", "idle GPUs of nodes without free CPU draw no job, and the message names the CPU", cpuPoor},
	{"forged-exporter", "an exporter that claims a million free GPUs draws one job, which its node could hold, and none while another cluster has room", forgedExporter},
	{"exporters-gone", "a cluster without fresh metrics gets no jobs and keeps those that it has", exportersGone},
	{"worker-unreachable", "a cluster that Kueue can't reach gets no jobs and keeps those that it has", workerUnreachable},
	{"big-job", "a big job waits behind small ones and starts when they end", bigJob},
	{"preemption", "a job of high priority takes quota on the hub from one of low priority, which then waits", preemption},
	{"operator-gone", "while the operator is gone, jobs run on and new ones wait; they start when it is back", operatorGone},
	{"prerequisite", "a job goes only where its Secret is, and waits while no cluster has it", prerequisite},
}

func burst(s *Script) string {
	const jobs = 12 // two more than fit on the best cluster
	name := func(i int) string { return fmt.Sprintf("burst-%d", i+1) }
	for i := range jobs {
		s.Submits(Job{Name: name(i), Model: H100, Devices: 2})
	}
	count := map[string]int{}
	for i := range jobs {
		count[s.Running(name(i))]++
	}
	Require(len(count) > 1, "all jobs run on one cluster: %v", count)
	var parts []string
	for _, cluster := range []string{"cluster1", "cluster2", "cluster3"} {
		parts = append(parts, fmt.Sprintf("%d on %s", count[cluster], cluster))
	}
	return fmt.Sprintf("%d jobs: %s", jobs, strings.Join(parts, ", "))
}

func wholeNodes(s *Script) string {
	first := ""
	for i := range 3 {
		name := fmt.Sprintf("whole-%d", i+1)
		cluster := s.Start(Job{Name: name, Model: H100, Devices: 8})
		Require(cluster != "cluster2", "%s runs on cluster2, which has no node with 8 H100 GPUs", name)
		if i == 0 {
			first = cluster
		}
	}
	s.Submits(Job{Name: "whole-4", Model: H100, Devices: 8})
	s.Waits("whole-4", "best is cluster2 with 6")
	s.Deletes("whole-1")
	s.RunningOn("whole-4", first)
	return fmt.Sprintf("3 jobs filled the whole nodes, the 4th started on %s when a job ended there", first)
}

func gpuLost(s *Script) string {
	Must(s.SetDeviceLost("cluster3", H100, true))
	s.Log("a GPU of cluster3 is lost")
	Must(s.AwaitFree("cluster3", H100, 7))
	for i := range 2 {
		s.StartsOn(Job{Name: fmt.Sprintf("lost-%d", i+1), Model: H100, Devices: 8}, "cluster1")
	}
	s.Submits(Job{Name: "lost-3", Model: H100, Devices: 8})
	s.Waits("lost-3", "best is cluster3 with 7")
	Must(s.SetDeviceLost("cluster3", H100, false))
	s.Log("the GPU of cluster3 is back")
	s.RunningOn("lost-3", "cluster3")
	return "no job went to the node with 7 of 8 GPUs; lost-3 started there when the GPU was back"
}

func cpuPoor(s *Script) string {
	const others = 6 // jobs of 4 H100s fit on cluster2 and cluster3
	Must(s.SetCPUTaken("cluster1", H100, true))
	s.Log("the nodes of cluster1 with H100 GPUs have one free core each, and 16 free GPUs")
	for i := range others {
		name := fmt.Sprintf("starts-%d", i+1)
		cluster := s.Start(Job{Name: name, Model: H100, Devices: 4})
		Require(cluster != "cluster1", "%s runs on cluster1, whose nodes have no free CPU", name)
	}
	s.Submits(Job{Name: "late", Model: H100, Devices: 4})
	s.Waits("late", "CPU")
	Must(s.SetCPUTaken("cluster1", H100, false))
	s.Log("the CPU of cluster1 is free")
	s.RunningOn("late", "cluster1")
	return fmt.Sprintf("%d jobs went elsewhere, and the next one started on cluster1 when its nodes had CPU", others)
}

func forgedExporter(s *Script) string {
	holder := ""
	for i := range 3 { // fill the nodes with 8 H100s
		name := fmt.Sprintf("holds-%d", i+1)
		if s.Start(Job{Name: name, Model: H100, Devices: 8}) == "cluster3" {
			holder = name
		}
	}
	Must(s.AwaitFree("cluster3", H100, 0))
	Must(s.SetForged("cluster3", H100, true))
	Must(s.AwaitFree("cluster3", H100, 8))
	s.Log("an exporter of cluster3 claims a million free H100s; 8 count, which is what its node has, and %s holds them", holder)
	for i := range 3 {
		s.StartsOn(Job{Name: fmt.Sprintf("small-%d", i+1), Model: H100, Devices: 4}, "cluster2")
	}
	s.Submits(Job{Name: "drawn", Model: H100, Devices: 8})
	s.Submits(Job{Name: "not-drawn", Model: H100, Devices: 8})
	s.Waits("not-drawn", "no cluster has")
	Must(s.SetForged("cluster3", H100, false))
	Must(s.AwaitFree("cluster3", H100, 0))
	s.Deletes(holder)
	s.RunningOn("drawn", "cluster3")
	return "jobs went elsewhere while others had room, then one was sent to the claimed devices; it started there when they were free"
}

func exportersGone(s *Script) string {
	silent := s.Start(Job{Name: "stays", Model: H100, Devices: 1})
	Must(s.SetMetrics(silent, false))
	s.Log("the exporters of %s are gone, and its score shows it", silent)
	cluster := s.Start(Job{Name: "elsewhere", Model: H100, Devices: 1})
	Require(cluster != silent, "elsewhere runs on %s, which has no fresh metrics", cluster)
	s.StaysOn("stays", silent)
	return fmt.Sprintf("the score of %s fell, a new job went to %s, and the old one runs on", silent, cluster)
}

func workerUnreachable(s *Script) string {
	lost := s.Start(Job{Name: "cut-off", Model: H100, Devices: 1})
	Must(s.SetConnected(lost, false))
	s.Log("the hub's Kueue has no connection to %s", lost)
	for i := range 3 {
		name := fmt.Sprintf("reached-%d", i+1)
		cluster := s.Start(Job{Name: name, Model: H100, Devices: 1})
		Require(cluster != lost, "%s runs on %s, which Kueue can't reach", name, lost)
	}
	s.Submits(Job{Name: "large", Model: H100, Devices: 16})
	s.Waits("large", lost+" is not connected by Kueue")
	s.StaysOn("cut-off", lost)
	Must(s.SetConnected(lost, true))
	s.StaysOn("cut-off", lost)
	return fmt.Sprintf("3 new jobs avoided %s, and its job ran on", lost)
}

func bigJob(s *Script) string {
	const small = 6 // 12 of the 12 L4 GPUs: 4 on cluster1, 8 on cluster3
	name := func(i int) string { return fmt.Sprintf("small-%d", i+1) }
	Must(s.AwaitFree("", L4, 2*small))
	for i := range small {
		s.Submits(Job{Name: name(i), Model: L4, Devices: 2})
	}
	for i := range small {
		s.Running(name(i))
	}
	s.Submits(Job{Name: "big", Model: L4, Devices: 8})
	s.Waits("big", "no cluster has")
	for i := range small {
		s.Deletes(name(i))
	}
	s.RunningOn("big", "cluster3")
	return "big waited for the small jobs and started on cluster3"
}

func preemption(s *Script) string {
	Must(s.CreateQueue("preempting", 8)) // quota for one job
	first := s.Start(Job{Name: "low", Model: H100, Devices: 8, Queue: "preempting"})
	s.Submits(Job{Name: "high", Model: H100, Devices: 8, Queue: "preempting", High: true, Duration: 5 * time.Second})
	Must(s.AwaitNowhere("low"))
	s.Log("low is preempted")
	Must(s.AwaitFinished("high"))
	s.Log("high has finished")
	second := s.Running("low")
	return fmt.Sprintf("high took the quota of low, which had run on %s; after high finished, low started on %s", first, second)
}

func operatorGone(s *Script) string {
	cluster := s.Start(Job{Name: "runs-on", Model: H100, Devices: 1})
	Must(s.SetOperator(false))
	s.Log("the operator is killed")
	s.Submits(Job{Name: "later", Model: H100, Devices: 1})
	Must(s.AwaitQuota("later"))
	s.StaysOn("runs-on", cluster)
	Must(s.SetOperator(true))
	s.Log("the operator is back")
	later := s.Running("later")
	s.StaysOn("runs-on", cluster)
	return fmt.Sprintf("later waited for the operator and runs on %s; runs-on stayed on %s", later, cluster)
}

func prerequisite(s *Script) string {
	for _, secret := range []struct{ cluster, name string }{{"cluster1", "other"}, {"cluster2", "other"}, {"cluster3", "dataset"}} {
		Must(s.CreateSecret(secret.cluster, secret.name))
	}
	s.Log("the Secret dataset exists on cluster3 only")
	Must(s.RequireSecrets())
	s.StartsOn(Job{Name: "reads-dataset", Model: H100, Devices: 1, Secret: "dataset"}, "cluster3")
	s.Submits(Job{Name: "reads-token", Model: H100, Devices: 1, Secret: "token"})
	for _, c := range Fleet {
		s.Waits("reads-token", c.Name+" does not have Secret token")
	}
	Must(s.CreateSecret("cluster2", "token"))
	s.Log("the Secret token exists on cluster2")
	s.RunningOn("reads-token", "cluster2")
	return "each job went to the only cluster with its Secret, and waited until there was one"
}

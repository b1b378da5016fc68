package scenario

import (
	"context"
	"fmt"

	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

func nvlink(s *script) string {
	s.createsGatedQueue(fleet.NVLinkQueue)
	const node = "cluster3-gpu0"
	s.onEnd(func(context.Context) error { return s.fleet.ConnectDevices(node, 8) })
	story.Must(s.fleet.ConnectDevices(node, 4))
	s.log("NVLink connects only 4 of the 8 GPUs of %s", node)
	s.shows(fmt.Sprintf(`node_resource_model:plimsoll_free_group_devices:placeable{node=%q}`, node), 4)
	linked := func(name string) fleet.Job {
		return fleet.Job{Name: name, Model: fleet.H100, GPUs: 8, Queue: "nvlink"}
	}
	for i := range 2 {
		s.startsOn(linked(fmt.Sprintf("linked-%d", i+1)), "cluster1")
	}
	s.submits(linked("linked-3"))
	s.waits("linked-3", "best is cluster3 with 8 free on one node")
	s.submits(fleet.Job{Name: "linked-l4", Model: fleet.L4, GPUs: 2, Queue: "nvlink"})
	s.waits("linked-l4", "best is cluster3 with 8 free on one node")
	s.log("L4 GPUs have no NVLink")
	s.startsOn(fleet.Job{Name: "needs-none", Model: fleet.H100, GPUs: 8}, "cluster3")
	s.deletes("needs-none")
	story.Must(s.fleet.ConnectDevices(node, 8))
	s.log("NVLink connects all GPUs of %s", node)
	s.runsOn("linked-3", "cluster3")
	return "no job went to 8 free GPUs of which only 4 were connected; linked-3 started there when all were"
}

package scenario

import (
	"context"
	"fmt"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

func idle(s *script) string {
	s.deleteAtEnd("reclaimpolicy/idle-gpus")
	s.createsQueue(fleet.GPUQueue{Name: "reclaim", Hub: 16, Worker: 256})
	clusters := map[string]string{}
	for _, name := range []string{"notebook", "busy"} {
		clusters[name] = s.starts(fleet.Job{Name: name, Model: fleet.H100, GPUs: 8, Queue: "reclaim", PodLabels: map[string]string{v1alpha1.ReclaimableLabel: "true"}})
	}
	node, err := s.fleet.NodeOf(s.ctx, "notebook", clusters["notebook"])
	story.Must(err)
	s.onEnd(func(context.Context) error { return s.fleet.SetIdle(node, false) })
	story.Must(s.fleet.SetIdle(node, true))
	s.log("the GPUs of notebook are idle")
	s.submits(fleet.Job{Name: "waits", Model: fleet.H100, GPUs: 8, Queue: "reclaim", Duration: 5 * time.Second})
	s.log("waits needs the quota of notebook")
	s.applies(fleet.ReclaimIdle(v1alpha1.ModeShadow))
	s.reclaims("idle-gpus", "to record in mode Shadow that notebook is idle", func(status *v1alpha1.ReclaimPolicyStatus) bool {
		if len(status.History) != 1 {
			return false
		}
		r := status.History[0]
		return isOf(r.Name, "notebook") && r.Mode == v1alpha1.ModeShadow && r.Cluster == clusters["notebook"] && r.Devices == 8 && r.IdleSeconds >= 10
	})
	for name, cluster := range clusters {
		s.staysOn(name, cluster)
	}
	s.log("in mode Shadow, the policy records that notebook is idle, and nothing else happens")
	s.applies(fleet.ReclaimIdle(v1alpha1.ModeEnforce))
	s.sees("notebook", "to return to its queue", func(v fleet.JobView) bool { return v.Cluster == "" && len(v.Copies) == 0 && !v.Admitted })
	s.log("notebook is back in its queue")
	s.sees("waits", "to finish", func(v fleet.JobView) bool { return v.Finished && len(v.Copies) == 0 })
	s.log("waits has finished")
	story.Must(s.fleet.SetIdle(node, false))
	again := s.runs("notebook")
	s.staysOn("busy", clusters["busy"])
	s.requireEvent("Reclaimed ReclaimPolicy idle-gpus returns it to its queue: its 8 devices on " + clusters["notebook"])
	s.requireRecord("notebook", `"reclaimed"`)
	return fmt.Sprintf("notebook returned its idle GPUs on %s, another job ran, and then notebook runs again on %s", clusters["notebook"], again)
}

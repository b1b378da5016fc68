package scenario

import (
	"context"
	"fmt"

	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

func quota(s *script) string {
	const cluster, node, gpus = "cluster2", "cluster2-gpu2", 6
	s.deleteAtEnd("capacitypolicy/measured", "cohort/measured")
	s.createsQueue(fleet.GPUQueue{Name: "measured", Worker: 256, Cohort: "measured"})
	s.applies(fleet.MeasuredQuota)
	all := s.cohortQuota(func(quota int) bool { return quota > gpus })
	s.log("the policy gives the Cohort a quota of %d H100 GPUs", all)
	s.starts(fleet.Job{Name: "borrows", Model: fleet.H100, GPUs: 4, Queue: "measured"})

	set := func(state fleet.DeviceState) error {
		for i := range gpus {
			if err := s.fleet.SetDevice(node, i, state); err != nil {
				return err
			}
		}
		return nil
	}
	s.onEnd(func(context.Context) error { return set(fleet.DeviceOK) })
	story.Must(set(fleet.DeviceLost))
	s.log("the %d GPUs of %s are lost", gpus, node)
	s.cohortQuota(func(quota int) bool { return quota == all-gpus })
	story.Must(set(fleet.DeviceOK))
	s.log("the quota is %d; the GPUs of %s are back", all-gpus, node)
	s.cohortQuota(func(quota int) bool { return quota == all })

	s.onEnd(func(ctx context.Context) error { return s.fleet.SetUnschedulable(ctx, cluster, node, false) })
	story.Must(s.fleet.SetUnschedulable(s.ctx, cluster, node, true))
	s.log("%s is cordoned", node)
	s.cohortQuota(func(quota int) bool { return quota == all-gpus })
	story.Must(s.fleet.SetUnschedulable(s.ctx, cluster, node, false))
	s.cohortQuota(func(quota int) bool { return quota == all })
	return fmt.Sprintf("the quota followed lost and cordoned GPUs from %d to %d and back, and a queue without GPUs of its own borrowed it", all, all-gpus)
}

// cohortQuota waits until the quota of the Cohort is as wanted, and returns it.
func (s *script) cohortQuota(want func(int) bool) (quota int) {
	s.await("the quota of the Cohort", func(ctx context.Context) (err error) {
		if quota, err = s.fleet.CohortQuota(ctx, "measured"); err == nil && !want(quota) {
			err = fmt.Errorf("it is %d", quota)
		}
		return err
	})
	return quota
}

package scenario

import (
	"context"
	"fmt"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func quota(ctx context.Context, s *stage) (string, error) {
	const node, gpus = "cluster2-gpu2", 6
	s.deleteAtEnd("capacitypolicy/measured", "cohort/measured")
	if err := s.createQueue(ctx, fleet.GPUQueue{Name: "measured", Worker: 256, Cohort: "measured"}); err != nil {
		return "", err
	}
	if err := s.fleet.Hub.Apply(ctx, fleet.MeasuredQuota); err != nil {
		return "", err
	}
	all, err := s.awaitQuota(ctx, func(quota int) bool { return quota > gpus })
	if err != nil {
		return "", err
	}
	s.log("the policy gives the Cohort a quota of %d H100 GPUs", all)
	if _, err := s.start(ctx, fleet.Job{Name: "borrows", Model: fleet.H100, GPUs: 4, Queue: "measured"}); err != nil {
		return "", err
	}
	setAll := func(state fleet.DeviceState) error {
		for i := range gpus {
			if err := s.fleet.SetDevice(node, i, state); err != nil {
				return err
			}
		}
		return nil
	}
	s.onEnd(func(context.Context) error { return setAll(fleet.DeviceOK) })
	if err := setAll(fleet.DeviceLost); err != nil {
		return "", err
	}
	s.log("the %d GPUs of %s are lost", gpus, node)
	lowered, err := s.awaitQuota(ctx, func(quota int) bool { return quota == all-gpus })
	if err != nil {
		return "", err
	}
	s.log("the quota is %d", lowered)
	if err := setAll(fleet.DeviceOK); err != nil {
		return "", err
	}
	s.log("the GPUs of %s are back", node)
	_, err = s.awaitQuota(ctx, func(quota int) bool { return quota == all })
	return fmt.Sprintf("the quota followed the hardware from %d to %d and back to %d GPUs, and a queue without GPUs of its own borrowed it", all, lowered, all), err
}

// awaitQuota waits until the quota of the Cohort is as wanted, and returns it.
func (s *stage) awaitQuota(ctx context.Context, want func(int) bool) (int, error) {
	var quota int
	err := fleet.Await(ctx, "the quota of the Cohort", func(ctx context.Context) error {
		var err error
		if quota, err = s.fleet.CohortQuota(ctx, "measured"); err == nil && !want(quota) {
			err = fmt.Errorf("it is %d", quota)
		}
		return err
	})
	return quota, err
}

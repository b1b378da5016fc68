package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

func profile(s *script) string {
	const seconds = 15
	s.deleteAtEnd("jobprofile/training")
	s.patchesGate(`{"profiles":{}}`, `{"profiles":null}`)
	s.starts(fleet.Job{Name: "training", Model: fleet.H100, GPUs: 2, Duration: seconds * time.Second, PodLabels: map[string]string{v1alpha1.ProfileLabel: "training"}})
	s.sees("training", "to finish", func(v fleet.JobView) bool { return v.Finished })
	s.log("training has finished")
	found := &v1alpha1.JobProfile{}
	s.await("the profile of the job", func(ctx context.Context) error {
		err := s.fleet.Hub.Client.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: "training"}, found)
		if err == nil && len(found.Status.Models) == 0 {
			err = errors.New("the profile has no run")
		}
		return err
	})
	m := found.Status.Models[0]
	for name, v := range map[string]*int64{"duration": m.DurationP50Seconds, "peak memory": m.MemoryPeakP90Bytes, "utilization": m.UtilizationP50Percent, "energy": m.EnergyP50Joules} {
		story.Require(v != nil && *v > 0, "the profile lacks the %s: %+v", name, m)
	}
	took := *m.DurationP50Seconds
	story.Require(found.Status.Runs == 1 && len(found.Status.Models) == 1 && m.Model == fleet.H100.Label && took >= seconds && took <= 6*seconds,
		"the profile of one run of %d s on %s is %+v", seconds, fleet.H100.Label, found.Status)
	s.prints("profile", "-n", fleet.Namespace)
	return fmt.Sprintf("the run left the profile %s on %s", found.Name, m.Model)
}

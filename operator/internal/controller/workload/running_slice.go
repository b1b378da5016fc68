package workload

import (
	"context"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// maxReplacedSlices limits how many slices of a job are read. Users can write the annotation that names
// the replaced slice, so that slices may replace each other.
const maxReplacedSlices = 16

// observeRunningSlice finds the admitted slice of an elastic job that runs without MultiKueue while the
// workload, its new slice, waits:
//  1. The job runs and is resized. The new slice has the quota of all pods.
//  2. Kueue finishes the old slice at once, without waiting for admission checks.
//  3. The job runs on with its former number of pods. Only an eviction of the new slice stops it.
//
// The slices in between were resized before Kueue admitted them. If Kueue evicted the admitted slice or
// one after it, the job was stopped, or has lost its place.
func (r *Reconciler) observeRunningSlice(ctx context.Context, s *lifecycle.Situation) error {
	slice := s.Workload
	for range maxReplacedSlices {
		if kueuestate.CountEvictions(slice) > 0 {
			return nil
		}
		old, err := r.replacedSlice(ctx, slice)
		if err != nil || old == nil || kueuestate.IsEvicted(old) {
			return err
		}
		if kueuestate.IsAdmitted(old) {
			s.Job.RunningSlice = old
			return nil
		}
		slice = old
	}
	return nil
}

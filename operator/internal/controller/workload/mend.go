package workload

import (
	"context"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
)

// mend an annotation that cannot be read: it is begun anew, with what is nominated.
func (r *Reconciler) mend(ctx context.Context, s *subject) error {
	_, bad := dispatch.Decode(s.wl.Annotations)
	if bad == nil {
		return nil
	}
	const reason = "BadAnnotation"
	record := dispatch.Record{}
	if nominated := s.wl.Status.NominatedClusterNames; len(nominated) > 0 {
		record = record.Begin(nominated, reason, r.now())
	}
	if _, err := r.annotate(ctx, s.wl, record); err != nil {
		return err
	}
	r.event(s.wl, true, reason, bad.Error()+"; it was begun anew")
	return nil
}

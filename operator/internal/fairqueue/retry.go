package fairqueue

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RetryLimiter delays the retries of each request: 5 ms after its first failure, twice as long after
// each further one, at most longest. It has no limit for all requests together, as the default of
// controller-runtime does: during an outage such a limit grows into delays of many minutes.
func RetryLimiter(longest time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, longest)
}

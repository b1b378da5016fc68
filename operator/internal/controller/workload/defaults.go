package workload

import "time"

// The controller's reaction to a cache that lags behind its own writes.
const (
	// staleAfter is the delay after which a workload that was read too early is read again.
	staleAfter = 200 * time.Millisecond
	// lagAtMost is the longest time for which the cache may lack a write of the controller.
	// After that another client overwrote it.
	lagAtMost = 5 * time.Second
)

// Copies of an earlier attempt on the workers.
const (
	// copyStays is the time without quota, or with a connected cluster, after which Kueue has
	// removed a workload's copies.
	copyStays = 10 * time.Second
	// outageShows is the time that Kueue may take to report a cluster as unreachable.
	outageShows = 15 * time.Second
	// waitsForCopy is the longest time for which a workload waits for an unreachable cluster.
	waitsForCopy = time.Minute
)

// Query results.
const (
	// freshFor is the age up to which a result is not queried again.
	freshFor = time.Second
	// forgetAfter is the shortest time for which an unused result is kept.
	forgetAfter = 2 * time.Minute
	// maxAhead is the largest accepted difference between the clock behind sample times and
	// the operator's.
	maxAhead = time.Minute
	// askTimeout bounds one query. The source may state less.
	askTimeout = 20 * time.Second
	// tidyEvery is the interval at which unused results are dropped.
	tidyEvery = 10 * time.Second
)

// Wake-ups of waiting workloads.
const (
	// wakeTick is the resolution of the wait queue's clock.
	wakeTick = 250 * time.Millisecond
	// wakeGap is the shortest time between two rounds of one gate.
	wakeGap = time.Second
	// settleGap is the time between two rounds while the samples are about to show a change.
	settleGap = 2 * time.Second
)

// othersFor is the time for which one listing of queues and workloads serves every
// workload that may yield.
const othersFor = time.Second

// messageCost is the time between two check messages that differ only in numbers,
// over all waiting workloads: MultiKueue 0.19 reads every worker after each update of a
// Workload, with a limit of 5 requests/s.
const messageCost = 5 * time.Second

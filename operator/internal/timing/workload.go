package timing

import "time"

// The controller's reaction to a cache that lags behind its own writes.
const (
	// staleAfter is the delay after which a workload that was read too early is read again.
	RereadDelay = 200 * time.Millisecond
	// lagAtMost is the longest time for which the cache may lack a write of the controller.
	// After that another client overwrote it.
	MaxCacheLag = 5 * time.Second
)

// Copies of an earlier attempt on the workers.
const (
	// copyStays is the time without quota, or with a connected cluster, after which Kueue has
	// removed a workload's copies.
	CopyCleanup = 10 * time.Second
	// outageShows is the time that Kueue may take to report a cluster as unreachable.
	OutageDetection = 15 * time.Second
	// waitsForCopy is the longest time for which a workload waits for an unreachable cluster.
	MaxCopyWait = time.Minute
)

// Query results.
const (
	// freshFor is the age up to which a result is not queried again.
	FreshResult = time.Second
	// forgetAfter is the shortest time for which an unused result is kept.
	UnusedResultTTL = 2 * time.Minute
	// maxAhead is the largest accepted difference between the clock behind sample times and
	// the operator's.
	MaxClockSkew = time.Minute
	// askTimeout bounds one query. The source may state less.
	QueryTimeout = 20 * time.Second
	// tidyEvery is the interval at which unused results are dropped.
	CleanupInterval = 10 * time.Second
)

// Wake-ups of waiting workloads.
const (
	// wakeTick is the resolution of the wait queue's clock.
	WakeTick = 250 * time.Millisecond
	// wakeGap is the shortest time between two rounds of one gate.
	MinRoundGap = time.Second
	// settleGap is the time between two rounds while the samples are about to show a change.
	SettlingRoundGap = 2 * time.Second
)

// othersFor is the time for which one listing of queues and workloads serves every
// workload that may yield.
const PendingListTTL = time.Second

// messageCost is the time between two check messages that differ only in numbers,
// over all waiting workloads: MultiKueue 0.19 reads every worker after each update of a
// Workload, with a limit of 5 requests/s.
const MessageInterval = 5 * time.Second

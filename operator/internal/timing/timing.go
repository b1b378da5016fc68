// Package timing holds the durations of the admission path, each with its reason. A duration
// that depends on another component states the version in which it was measured.
package timing

import "time"

// Defaults of the PlacementGate API. They apply to objects that no API server has defaulted.
const (
	// DefaultMaxSampleAge is the default of freshness.maxSampleAgeSeconds: four scrapes of 30 s.
	DefaultMaxSampleAge = 120 * time.Second
	// DefaultUnknownAfter is the default of freshness.unknownAfterSeconds. Prometheus itself
	// stops returning a series after 5 minutes without a sample.
	DefaultUnknownAfter = 300 * time.Second
	// DefaultWidenAfter is the default of advanced.widenAfterSeconds. In simulation, values from 15 s
	// to 120 s gave the same waiting times.
	DefaultWidenAfter = 30 * time.Second
	// DefaultHoldAfter is the default of hold.afterSeconds. The table in
	// operator/docs/order.md compares values.
	DefaultHoldAfter = 300 * time.Second
	// DefaultAging is the default of hold.agingSeconds.
	DefaultAging = 4 * time.Hour
	// DefaultPeriod is the default of periodSeconds: one scrape interval.
	DefaultPeriod = 15 * time.Second
	// DefaultNotAdmittedAfter is the default of notAdmittedAfterSeconds: long enough for every
	// widening, and for a worker to preempt other workloads.
	DefaultNotAdmittedAfter = 10 * time.Minute
	// DefaultYieldAfter is the default of whenUnplaceable.yieldAfterSeconds. A yield restarts
	// the workload's way to admission, so short waits must not cause one.
	DefaultYieldAfter = 300 * time.Second
	// DefaultNeverAfter is the default of whenUnplaceable.never.afterSeconds. A pool of nodes that is
	// replaced is back before that.
	DefaultNeverAfter = 600 * time.Second
)

// Reaction times of Kueue, measured on Kueue 0.19.
const (
	// EvictionGrace is the time after which an incomplete eviction counts as stuck, if Kueue waits
	// neither for pods nor for MultiKueue. Kueue completes such an eviction within 3 s.
	EvictionGrace = 5 * time.Second
	// DefaultPodGrace is the default of terminationGracePeriodSeconds in Kubernetes.
	DefaultPodGrace = 30 * time.Second
	// MaxPodGrace is the longest time for which an eviction may wait for pods before it counts as
	// stuck.
	MaxPodGrace = 10 * time.Minute
	// DispatchGrace is the time after which Kueue's built-in dispatcher counts as absent. The
	// dispatcher nominates clusters within seconds.
	DispatchGrace = 30 * time.Second
	// YieldSleep is the time for which a workload that yields stays deactivated without quota, so
	// that other workloads get it. A reclaimed workload pauses at least as long. Kueue looks at
	// workloads without quota 1 s after quota was released, or 10 s with SchedulerLongRequeueInterval.
	YieldSleep = 15 * time.Second
	// MaxReclaimPause is the longest pause of a reclaimed workload, if its pods have a long grace
	// period.
	MaxReclaimPause = 10 * time.Minute
	// MoveAvoidance is the time after its pause in which a workload that was moved away from a cluster is
	// not sent there again: the waiting workload, for which it was moved, starts meanwhile.
	MoveAvoidance = 10 * time.Minute
	// StartAvoidance is the time in which a workload does not return to a cluster that did not start it, while
	// another one could hold it.
	StartAvoidance = 30 * time.Minute
	// SlowStart is the time after an admission from which a cluster where pods are not ready yet follows the others.
	SlowStart = 2 * time.Minute
	// HangsAfter is the time after an admission from which pods that are not ready count against the cluster.
	HangsAfter = 5 * time.Minute
	// LongestStart bounds what a namespace learns of how long its pods take to be ready. It is the default of Kueue's
	// PodsReady timeout.
	LongestStart = 30 * time.Minute
	// ProbePause is the time between two workloads that are sent to a cluster which starts none.
	ProbePause = 15 * time.Minute
	// CopyCleanup is the time within which Kueue removes a workload's copies from a connected
	// cluster after the workload lost its quota.
	CopyCleanup = 10 * time.Second
	// FirstConnection is the time within which Kueue reports a new MultiKueueCluster that it can't
	// connect to. An attempt without a response ends after 30 s.
	FirstConnection = time.Minute
	// OutageDetection is the time within which Kueue reports a cluster as unreachable.
	OutageDetection = 15 * time.Second
	// MessageInterval is the minimum time between two check messages that differ only in
	// numbers, over all waiting workloads. MultiKueue reads every worker after each update of
	// a Workload, limited to 5 requests per second.
	MessageInterval = 5 * time.Second
)

// Limits on waiting and repeated actions.
const (
	// PodsReadyLimit is the time after an admission from which pods that are not ready are
	// reported. Pulling a large image takes minutes.
	PodsReadyLimit = 10 * time.Minute
	// StartupAllowance is the time from a nomination to the start of the pods that a workload
	// of known duration needs in addition, before it may use a held cluster.
	StartupAllowance = time.Minute
	// RefusedPause is the time after a write that the API server refused in which the workload is left alone. Whoever
	// removes the cause waits for at most as long.
	RefusedPause = time.Minute
	// ReleasedWait is the time for which a workload that the gate decided first keeps its devices
	// reserved while Kueue gives it quota, also by preemption.
	ReleasedWait = time.Minute
	// FirstYieldPause is the pause between the first and the second yield of a workload. Each
	// further pause is twice as long, up to LastYieldPause.
	FirstYieldPause = 5 * time.Minute
	// LastYieldPause is the longest pause between two yields of a workload.
	LastYieldPause = 30 * time.Minute
	// MaxForgottenRetries is the number of PodsReady timeouts of a workload from which it is no longer deactivated for
	// others. Each takes half an hour by Kueue's default, so that such a workload is likely to be broken.
	MaxForgottenRetries = 5
	// JobQuotaGrace is the time after its own reservation for which component 0 of a job waits until
	// Kueue has reserved quota for the others. Kueue does it for one after the other.
	JobQuotaGrace = 5 * time.Second
	// MaxJobQuotaWait is the longest time after its own reservation for which a component of a job waits until
	// Kueue has reserved quota for the others, without which MultiKueue deletes the job on its cluster.
	MaxJobQuotaWait = 5 * time.Minute
	// MaxCopyWait is the longest time for which a workload waits for an unreachable cluster
	// that may hold its copy.
	MaxCopyWait = time.Minute
	// ClusterRequestTTL is the time for which a workload's need of a cluster outside of the
	// MultiKueueConfig counts. Waiting workloads renew it at each wake-up.
	ClusterRequestTTL = 3 * time.Minute
	// ConflictTTL is the time for which evidence of a conflicting dispatcher counts. Conflicts
	// leave traces on single workloads, with pauses in between.
	ConflictTTL = 10 * time.Minute
)

// Times from an event to the first sample that shows its effect.
const (
	// PodsReadySettle is the time after PodsReady from which a sample shows the pods' devices.
	// Conditions have a resolution of one second.
	PodsReadySettle = time.Second
	// AdmissionSettlePeriods is the number of settling times after an admission from which a
	// sample shows the pods' devices although Kueue has not reported PodsReady. A pod that
	// pulls its image already holds its devices.
	AdmissionSettlePeriods = 4
)

// Query results.
const (
	// FreshResult is the age up to which a result is not queried again.
	FreshResult = time.Second
	// UnusedResultTTL is the minimum time for which an unused result is kept.
	UnusedResultTTL = 2 * time.Minute
	// CleanupInterval is the interval at which unused results are dropped.
	CleanupInterval = 10 * time.Second
	// HolderInterval is the interval at which the holders of devices are queried, while workloads
	// are on their way to a cluster.
	HolderInterval = 5 * time.Second
	// MaxClockSkew is the largest accepted lead of sample times over the operator's clock.
	MaxClockSkew = time.Minute
	// SourceRetry is the delay before a MetricsSource is looked up again that exists but is not
	// registered yet.
	SourceRetry = 100 * time.Millisecond
	// MaxRound limits the queries of one reconciliation, whatever periods and timeouts are set. What a
	// round writes after them must also end before the liveness probe fails, which restarts the
	// operator if a reconciliation lasts for 5 minutes.
	MaxRound = 4 * time.Minute
	// QueryTimeout limits one query. A MetricsSource may set a shorter timeout.
	QueryTimeout = 20 * time.Second
)

// Wake-ups of waiting workloads.
const (
	// WakeTick is the resolution of the wait queue's clock.
	WakeTick = 250 * time.Millisecond
	// MinWakeUpGap is the minimum time between two wake-ups of one gate. The wake-ups of a gate
	// query the source.
	MinWakeUpGap = time.Second
	// SettlingWakeUpGap is the time between two wake-ups while samples are about to show a change.
	SettlingWakeUpGap = 2 * time.Second
	// PendingListTTL is the time for which one list of queues and workloads serves every
	// workload that may yield.
	PendingListTTL = time.Second
)

// The controller's cache, which lags behind its own writes.
const (
	// RereadDelay is the delay before a workload is read again, if the cache did not show the
	// controller's last write yet.
	RereadDelay = 200 * time.Millisecond
	// MaxRetryDelay is the longest delay before a failed reconciliation is repeated. The default of
	// controller-runtime, 16 minutes, would outlast the failure by as much.
	MaxRetryDelay = 30 * time.Second
	// MaxCacheLag is the longest time for which the cache may lack a write of the controller.
	// If the write is still missing then, another client overwrote the object.
	MaxCacheLag = 5 * time.Second
)

// Seconds converts an API field to a duration. If n is not positive, it returns unset.
func Seconds(n int32, unset time.Duration) time.Duration {
	if n <= 0 {
		return unset
	}
	return time.Duration(n) * time.Second
}

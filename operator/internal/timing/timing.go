package timing

import "time"

// Defaults of the PlacementGate API, for objects that an API server has not defaulted.
const (
	// DefaultMaxSampleAge is the default of freshness.maxSampleAgeSeconds: four scrapes of 30 s.
	DefaultMaxSampleAge = 120 * time.Second
	// DefaultUnknownAfter is the default of freshness.unknownAfterSeconds: Prometheus itself
	// stops returning a series after 5 minutes without a sample.
	DefaultUnknownAfter = 300 * time.Second
	// DefaultWidenAfter is the default of widen.afterSeconds. In simulation 15 s to 120 s
	// made no difference.
	DefaultWidenAfter = 30 * time.Second
	// DefaultPeriod is the default of periodSeconds: one scrape interval.
	DefaultPeriod = 15 * time.Second
	// DefaultYieldAfter is the default of whenUnplaceable.yieldAfterSeconds.
	DefaultYieldAfter = 300 * time.Second
)

// Kueue's reaction times, measured on Kueue 0.19.
const (
	// EvictionGrace is the time for which an eviction may be incomplete before the
	// controller treats it as stuck. Kueue completes an eviction within 3 s.
	EvictionGrace = 5 * time.Second
	// DispatchGrace is the time within which Kueue's built-in dispatcher nominates clusters.
	// It does so within seconds; after the grace period it is reported as absent.
	DispatchGrace = 30 * time.Second
	// YieldSleep is the time for which a workload that yields stays deactivated. Kueue looks
	// at workloads without quota 1 s after quota was released, or 10 s with
	// SchedulerLongRequeueInterval.
	YieldSleep = 15 * time.Second
)

// Pauses between two yields of one workload: the first, doubled each time, up to the last.
const (
	FirstYieldPause = 5 * time.Minute
	LastYieldPause  = 30 * time.Minute
)

// rivalFor is the time for which evidence of a conflicting dispatcher counts.
const ConflictTTL = 10 * time.Minute

// The ledger's view of samples.
const (
	// runningSettle is the time after PodsReady from which a sample shows the devices.
	// Conditions have a resolution of one second.
	PodsReadySettle = time.Second
	// toldSettles is the number of settling times after which an admitted workload counts as
	// measured although Kueue has not reported PodsReady: a pod that pulls its image already
	// holds its devices.
	AdmissionSettlePeriods = 4
)

// Seconds converts an API field to a duration. unset applies to 0 and below.
func Seconds(n int32, unset time.Duration) time.Duration {
	if n <= 0 {
		return unset
	}
	return time.Duration(n) * time.Second
}

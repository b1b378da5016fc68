// Package capacity computes the quota of a Cohort from the devices that its clusters
// report. It is pure: each round continues from the status that the last one wrote.
//
// A quota rises only if consecutive rounds agree. It falls only if fewer devices were
// measured for some time, or at once for devices that are known to be broken. What is
// unknown never changes a quota by itself: a source that fails keeps it, and a cluster
// without a fresh number keeps its last one for a while.
package capacity

// Package reclaim decides which workloads with idle devices return to their queues. It is pure:
// each round continues from the history that the last one recorded.
//
// A workload is reclaimed only if it agreed to it, if every one of its devices is known to be
// idle, and if another workload waits. What is unknown counts as busy: a device without a
// sample, a sample that is older than the run, or a cluster without fresh metrics.
package reclaim

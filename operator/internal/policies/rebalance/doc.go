// Package rebalance decides which running workload moves to another cluster, so that a waiting one
// can start. It is pure.
//
// The waiting workload is one for which a gate holds a cluster. A workload on that cluster moves only
// if it agreed to it, if the waiting one has a higher priority and fits on the cluster without it, and
// if it fits on another cluster itself, all by the gates' own rules and by fresh, complete metrics.
package rebalance

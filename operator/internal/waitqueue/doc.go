// Package waitqueue wakes the workloads that wait at a gate.
//
// A waiting workload has no timer of its own. The queue runs one round for each gate per
// period, and an early round if something changed:
//
//  1. StartRounds finds the gates that are due. For each querycache.Key with waiting
//     workloads it calls refresh once, whatever the number of workloads.
//  2. The query cache refreshes the key's results and calls Refreshed.
//  3. Refreshed enqueues the workloads of the key, which are then decided again.
//
// The time between two rounds of a gate is
//
//	timing.MinRoundGap        after MarkDirty
//	timing.SettlingRoundGap   after ExpectChanges, unless the period is shorter
//	periodSeconds             otherwise
//
// # Who is woken
//
// Each waiting workload has two times:
//
//	wakeFrom     Results older than this do not wake the workload: they do not show the
//	             change that caused the round.
//	wakeBefore   Results of this age or newer wake the workload for the last time.
//
// Both are zero if the workload is not due. Otherwise wakeFrom is not after wakeBefore.
//
//   - A workload that starts to wait, or waits under a new key, is due at once. It may have
//     been decided with results that are up to a period old.
//   - A round makes every workload of the gate due. It sets wakeBefore to the start of the
//     round, and wakeFrom as well unless the workload is due already. Rounds may start
//     faster than a slow source responds. The results of each round then wake the workload,
//     and it stays due until those of the latest round have.
//   - Adding a workload again with the same key keeps both times.
package waitqueue

// Package waitqueue wakes the workloads that wait at a gate, in the order in which the gate
// decides them.
//
// A waiting workload has no timer of its own. The queue runs one wake-up of each gate per
// period, and an early one if something changed. An early wake-up consists of the lines that might
// use the changed devices. The time between two wake-ups of a gate is
//
//	timing.MinWakeUpGap        after MarkDirty and MarkFreed
//	timing.SettlingWakeUpGap   after ExpectChanges, unless the period is shorter
//	periodSeconds             otherwise
//
// # A wake-up
//
// Workloads with the same gatestate.QueryKey and the same limits form a line. What the gate decides
// for one of them also holds for the others, apart from their ranks: if the first of them fits
// nowhere, neither do the others. Lines with one key share its results.
//
//  1. StartWakeUps requests results for every line of the gate. A line becomes due, and refresh
//     is called, as soon as its namespace has a place.
//  2. The query cache refreshes the key's results and calls Refreshed.
//  3. The queue wakes one workload of the gate at a time: the one that ranks first among the
//     first workloads of the due lines. A line waits while its results are still being queried,
//     or while a competing line that ranks before waits for the results of the same wake-up.
//  4. The workload is decided, and Decided ends its turn. If it was placed, its line stays due,
//     and the next workload of the line may follow. If it waits on, the line is done.
//
// A wake-up therefore decides as many workloads as find room, and one more for each line.
//
// # Namespaces
//
// At most maxDueLines lines of a namespace are due at a gate at the same time. The others follow
// in later batches, one for each line that is done. Lines of other namespaces do not wait for the
// later batches. A namespace with 1,000 lines therefore does not fill the source's queue, and a
// workload of another namespace waits for at most maxDueLines of its results. Between
// namespaces, the order of ranks holds for the first maxDueLines lines.
//
// # Outside of a turn
//
// Outside its turn, a workload may be placed only if no competing workload ranks before it:
// see Preceding. Otherwise it waits for an early wake-up.
//
// A workload is also woken without a turn to report what the gate decides for its line: when that changes for another
// reason, and when another workload of the line comes before it.
//
// # Which results wake a line
//
//	wakeFrom     Results older than this do not wake the line: they do not show the change
//	             that caused the wake-up.
//	wakeBefore   The line is done once it was decided with results of this age or newer.
//
// Both are zero if the line is not due. Otherwise wakeFrom is not after wakeBefore. A wake-up sets
// wakeBefore to its start, and wakeFrom as well unless the line is due already. Wake-ups may start
// faster than a slow source responds. The results of an earlier wake-up then wake the line, and it
// stays due until those of the latest wake-up have.
package waitqueue

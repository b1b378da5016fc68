// Package gate decides which clusters can take a workload now, and in which order.
//
// Every function depends only on its arguments and an explicit time: no client, no clock,
// no network. Controllers gather the input, call the package and apply the result. A
// simulation can call the same functions over a recorded trace.
//
//   - Decide excludes clusters by the rules in rejections.go and ranks the others.
//   - Unplaceable decides whether a workload without a place waits, yields or is rejected.
//   - Explain and Snapshot.Wait state the reasons for users.
//
// To add a rule, see "Add a gate rule" in CONTRIBUTING.md.
package gate

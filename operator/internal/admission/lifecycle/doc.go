// Package lifecycle decides what the operator does next with a workload: a Situation, which the controller
// observes, leads to a Step, which the controller carries out. It reads no client and no clock.
//
//   - phases.go: the table of phases says when a workload is in which one, and which step follows.
//   - aspect.go: the table of aspects says what restricts where a workload may go.
//   - inputs.go: what a decision of the gate rests on.
//   - step.go: what a step contains. The files step_*.go compute the steps, and write_decision.go the writes of a decision.
//
// A method of Situation answers a question that several files or packages ask, and that takes several of its values.
// A question about one value is asked of that value, such as Gate, Record or the Workload (package kueuestate).
// What one file asks is a function of that file.
package lifecycle

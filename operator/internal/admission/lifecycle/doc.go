// Package lifecycle decides what the operator does next with a workload: a Situation, which the controller
// observes, leads to a Step, which the controller carries out. It reads no client and no clock.
//
//   - phases.go: the table of phases says when a workload is in which one, and which step follows.
//   - aspect.go: the table of aspects says what restricts where a workload may go.
//   - inputs.go: what a decision of the gate rests on.
//   - step.go: what a step contains. The files step_*.go compute the steps.
package lifecycle

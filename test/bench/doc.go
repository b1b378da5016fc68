// Package bench contains benchmarks of the operator as a whole:
//
//   - TestRoundCost (make bench) measures scoring rounds of up to 10,000 clusters, with
//     a real kube-apiserver and a real Prometheus.
//   - TestRuleCost (make bench-rules) measures the evaluation of the rules on a real
//     Prometheus.
//   - TestAdmissionOnTheHub and TestDispatch (make bench-lab) measure the admission of
//     workloads on a fleet, and compare it with Kueue's own checks and dispatchers.
package bench

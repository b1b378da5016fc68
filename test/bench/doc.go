// Package bench measures what a round of scores costs: a real API server, a real
// Prometheus that holds the clusters' series, the operator as its users run it
// (make bench); and what admission costs, on a whole fleet (make bench-lab).
package bench

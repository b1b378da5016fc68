// Package bench measures what a round costs: a real API server, a real Prometheus
// that holds the clusters' series, the operator as its users run it. make bench
// runs it.
package bench

// Package metrics is the metrics store of the world in virtual time: it scrapes snapshots of
// clusters, evaluates the recording rules and serves queries as Prometheus and Thanos do.
//
// A Store has one of two modes. RulesEngine stores the series of exporters, kube-state-metrics and
// Kueue, and evaluates the shipped rules in Prometheus's engine. ClosedForm calculates the results of
// the rules that gates and simple policies read in Go, which takes far less time. In both modes
// Prometheus's engine evaluates the queries.
package metrics

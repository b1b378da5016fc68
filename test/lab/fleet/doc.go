// Package fleet runs a whole fleet on one machine, as processes on loopback: a
// hub and workers with real kube-apiservers, OCM placement, Kueue with
// MultiKueue, Prometheus with Thanos, kube-state-metrics, and on each simulated
// GPU node a real exporter over a real PodResources socket. Nothing of it is a
// mock but the nodes' kubelet (kwok) and the silicon.
//
// Up starts it, Fleet.Stop ends it. Every process dies with the one that called
// Up, also when that is killed.
package fleet

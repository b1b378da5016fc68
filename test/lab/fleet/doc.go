// Package fleet runs a fleet of clusters on one machine, as processes that listen
// on loopback:
//
//   - a hub and workers, each with a kube-apiserver;
//   - OCM placement, Kueue with MultiKueue, Prometheus with Thanos,
//     kube-state-metrics;
//   - an exporter and a PodResources socket for each GPU node.
//
// Only the kubelets (kwok) and the devices are simulated.
//
// Up starts the fleet, Fleet.Stop ends it. All processes die with the process that
// called Up, even if that process is killed.
package fleet

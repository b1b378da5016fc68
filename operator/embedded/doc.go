// Package embedded runs a Prometheus and the operator's decisions in one process, without
// an API server:
//
//   - Prometheus scrapes exporters into memory and evaluates the shipped recording rules
//     with Prometheus's own engine.
//   - Hub runs the rounds of a ScoringPolicy and decides about jobs at a PlacementGate,
//     with the same packages as the operator's controllers.
//
// The demo uses both while the components of its fleet are built. Kueue and OCM are
// missing: the caller plays the part of Kueue, and every cluster is eligible.
package embedded

// Package gate decides whether a workload may start now, and where. Everything
// in it is a function of plain values and a given time: no client, no clock, no
// network. The controllers gather, call, and apply what comes back; a simulation
// can call the same functions over a recorded trace.
//
// Decide drops the clusters that cannot take a workload, subtracts what the
// Ledger says is on its way, and orders the rest; Unplaceable says what becomes of a
// workload that finds no place, Dispatch.Phase and Wider what to do with one that
// has been nominated and waits. Explain and Standing.WaitsFor tell a user why.
// Membership keeps a MultiKueueConfig steady. Board and Ledger are the memory that the controllers
// of one process share.
package gate

// Package gatestate is the memory that the placementgate and workload controllers share
// within one process.
//
//	written by                   content                                         read by
//	placementgate controller     gates with their decided clusters and scores    workload controller
//	workload controller (queue)  waiting workloads of each gate                  status and metrics
//	workload controller (cache)  failing queries of each gate                    status
//	workload controller          evidence of a conflicting dispatcher            status
//
// Nothing is persistent. After a restart the controllers fill the registry again.
package gatestate

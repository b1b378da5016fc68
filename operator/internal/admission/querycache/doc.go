// Package querycache runs the queries of PlacementGates and caches their results.
//
//	Key                    gate, generation, source, cluster label, equivalent facts
//	 └─ plan               the gate's queries, rendered with the facts
//	     ├─ sampleTime ──▶ cached result
//	     ├─ fit        ──▶ cached result, with the sample times it was queried after
//	     ├─ quota      ──▶ cached result, with the sample times it was queried after
//	     └─ …          ──▶ cached result
//
// Workloads whose facts render to the same queries have the same Key and share a plan.
// Plans whose queries render to the same expression share the cached result.
//
// # Decisions and refreshes
//
// Results serves a decision. It returns cached results that are younger than the gate's
// period, and queries only what the cache lacks. If a returned result is older than
// timing.FreshResult, it also enqueues a refresh for the next decision.
//
// Refresh enqueues a Key. Each source has its own queue and its own workers, so a source
// that hangs does not delay another source. Namespaces take turns in a queue. A worker queries every result of the plan that
// is older than requested and then calls the OnRefreshed callback, which wakes the
// workloads that wait for newer results. At most one worker refreshes a Key, and
// concurrent queries for one expression run once.
//
// # Sample times
//
// The ledger subtracts a reservation from a cluster's room until the sample time of the
// cluster is late enough to include the reserved pods. If a sample time were newer than
// the fit it belongs to, the ledger would stop too early and the devices would be promised
// twice. Therefore:
//
//  1. A plan queries the sample times first. If that query fails, the others are skipped.
//  2. fit and quota keep the sample times that were known when they were queried.
//  3. The time of a cluster is the oldest among its results.
//
// # Failures
//
// If a query fails, the last successful values stay in the cache with their original time.
// Whether values of that age may decide is up to package gate. A response without some of
// the clusters is incomplete: for these clusters, absence from the response means nothing.
// The OnFaults callback receives for each gate its failing or incomplete queries, and the requirements
// that no cluster meets, alone or together.
package querycache

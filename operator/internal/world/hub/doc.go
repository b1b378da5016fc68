// Package hub is an API server in memory, with the caches of its client processes, for
// simulations in virtual time.
//
// A Server stores typed objects and follows the rules of the real API server on which the
// operator relies: versions, generations, the status subresource, finalizers, optimistic
// locking, JSON and merge patches, server-side apply and managedFields. A View is what one
// process sees of it: informers and cached reads that lag behind by a delay that the caller
// chooses.
//
// The package does not depend on the order of maps. If writes come in one order, versions, lists
// and events come in one order, too. Validation and defaults of CRDs are not part of it.
package hub

// Package hubstate reads the state of the hub that controllers and the CLI share:
// ManagedClusters, PlacementDecisions, AddOnPlacementScores and Kueue's MultiKueue
// objects. It only reads. A missing object is a value (nil or false), every other
// failure is an error that names the object.
//
// Lists may share memory with the client's cache: callers must not change the objects.
package hubstate

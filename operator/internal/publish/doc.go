// Package publish is the one writer of AddOnPlacementScores. It writes one object
// in each cluster's namespace, only where something has changed or the validity
// runs out, and never touches an object that the policy does not own.
package publish

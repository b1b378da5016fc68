// Package publish writes AddOnPlacementScores. It is their only writer: one object in
// the namespace of each cluster. It writes an object only if something changed or the
// validity runs out, and never touches an object with another owner.
package publish

// Package promengine evaluates queries and recording rules with Prometheus's own engine,
// in this process.
package promengine

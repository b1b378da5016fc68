// Package profile computes JobProfiles: it recognizes similar jobs, adds the measurements of
// a run to decaying histograms, reads percentiles from them, and characterizes a job by its
// medians. It is pure: each run continues from the status that the last one left.
//
// Measurements come from metrics that a tenant can influence. A value that is not a number,
// infinite, negative or beyond its scale is dropped, and the run counts without it.
package profile

// Package whatif answers what a gate would decide about jobs that nobody has submitted: the operator's own controller
// looks at a copy of the hub in memory, in which Kueue has just reserved quota for the job. Nothing is written.
package whatif

// Package trial decides the next step of a trial run and builds the copies of a job. It is pure:
// the state of a trial is in the status of its TrialPolicy, in the copies and in the JobProfile.
//
// No step keeps a job waiting beyond the time limit of its policy: Next passes the job if anything
// is missing, broken or late.
package trial

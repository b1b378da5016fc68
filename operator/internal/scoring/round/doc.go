// Package round runs one round of a ScoringPolicy:
//
//  1. Send each distinct query of the policy once, all at the same evaluation time.
//  2. Map the samples to clusters.
//  3. Discard the values of clusters whose samples are too old.
//  4. Evaluate the scores.
//
// The controller and the CLI commands preview, test and backtest share the package.
// They pass different Queriers, and use the Report differently.
package round

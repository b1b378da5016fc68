// Package score decides what a round of a policy publishes. Evaluate is a function
// of the policy, the samples, what the round before left, and the time: nothing in
// it asks, writes or waits, so that the operator, the CLI's preview and a backtest
// come to the same scores.
//
// No value ever becomes 0 by being absent. Each cluster has an Outcome per score,
// and a score without a usable value is held, then written as the worst, left out,
// or set to a fixed value, as its policy says.
package score

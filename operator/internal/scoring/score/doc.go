// Package score decides which scores a round of a policy publishes.
//
// Evaluate is a pure function of the policy, the samples of the round, the result of
// the previous round, and the time. The operator, the CLI's preview and a backtest
// therefore compute the same scores.
//
// A missing value never becomes 0. Each cluster has an Outcome per score. If the
// outcome is not OK, the last score is kept. After the keep time, the policy decides between
// the worst score, no score and a fixed value.
package score

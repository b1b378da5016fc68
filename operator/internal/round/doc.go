// Package round runs one round of a policy: one evaluation time, one question per
// distinct expression, the answers mapped to clusters, freshness judged, scores
// evaluated. The controller, the CLI's preview and test, and a backtest share it:
// they differ in the Querier that they pass, and in what they do with the Report.
package round

// Package promql parses and checks PromQL without asking a server. It says where
// an expression is wrong, and sets a workload's facts into the parsed expression,
// never into text, so that a fact can't change what is asked.
package promql

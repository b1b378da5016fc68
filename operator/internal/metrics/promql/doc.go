// Package promql parses and checks PromQL without a server. It reports the position of
// each error. Variables of a template are replaced in the parsed expression instead of in
// its text: the value of a variable can't change the query.
package promql

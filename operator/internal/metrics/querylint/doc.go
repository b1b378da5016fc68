// Package querylint finds queries that parse but cannot work, or that rarely mean what
// they say. It derives the labels of each intermediate result from the expression, so it
// needs no server.
//
// Each finding names its rule. The table in operator/docs/lint.md describes the rules.
// The package is pure.
package querylint

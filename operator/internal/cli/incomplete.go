package cli

import (
	"fmt"
	"maps"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// warnIncomplete writes a warning for each reason why the result of a query lacks data. what are
// the numbers that come from the query, as a plural.
func warnIncomplete(a *app, what string, result query.Result) {
	if result.Partial {
		_, _ = fmt.Fprintf(a.ErrOut, "warning: %s are incomplete: the response is partial: %s\n", what, result.PartialReason)
	}
	for _, cluster := range slices.Sorted(maps.Keys(result.Failed)) {
		_, _ = fmt.Fprintf(a.ErrOut, "warning: %s are incomplete: %s: %s\n", what, cluster, result.Failed[cluster])
	}
}

// isIncomplete reports whether a result lacks data, so that a missing series proves nothing.
func isIncomplete(result query.Result) bool { return result.Partial || len(result.Failed) > 0 }

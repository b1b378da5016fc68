package prometheus

import (
	"fmt"
	"maps"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// WarnIncomplete writes a warning for each reason why the result of a query lacks data. what are
// the numbers that come from the query, as a plural.
func WarnIncomplete(a *command.App, what string, result query.Result) {
	if result.Partial {
		_, _ = fmt.Fprintf(a.ErrOut, "warning: %s are incomplete: the response is partial: %s\n", what, result.PartialReason)
	}
	for _, cluster := range slices.Sorted(maps.Keys(result.Failed)) {
		_, _ = fmt.Fprintf(a.ErrOut, "warning: %s are incomplete: %s: %s\n", what, cluster, result.Failed[cluster])
	}
}

// IsIncomplete reports whether a result lacks data, so that a missing series proves nothing.
func IsIncomplete(result query.Result) bool { return result.Partial || len(result.Failed) > 0 }

package query

import (
	"context"
	"time"
)

// askPartial asks again, after a refusal, for what the reachable stores hold. Only
// Thanos knows such answers; any other failure stays what it is.
func (c *Client) askPartial(ctx context.Context, base, expr string, at time.Time, failure error) (Answer, error) {
	if c.cfg.Parameters.Get("partial_response") != "false" || !maybePartial(failure) {
		return Answer{}, failure
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, partialAllowed{}, true), c.cfg.Timeout)
	defer cancel()
	answer, _, second := c.ask(ctx, base, expr, at)
	if second != nil {
		return Answer{}, failure
	}
	answer.Partial = len(answer.Warnings) > 0
	return answer, nil
}

// maybePartial says whether a store that does not answer may be behind a failure.
func maybePartial(err error) bool {
	e, ok := err.(*Error)
	return ok && (e.Reason == ReasonUnavailable || e.Reason == ReasonTimeout || e.Reason == ReasonBadQuery && e.Status != 400)
}

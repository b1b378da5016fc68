package query

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// partialAnswer is the last answer to an expression, when not all stores gave it.
type partialAnswer struct {
	at  time.Time
	why string
}

// partialFor is how long it counts when the expression is not asked again.
const partialFor = 5 * time.Minute

// notePartial keeps whether all stores answered. An answer to another expression
// says nothing of them: it may come from other stores, or from none.
func (c *Client) notePartial(expr string, answer Answer, err error) {
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.partial, expr)
	if answer.Partial {
		c.partial[expr] = partialAnswer{time.Now(), answer.Warnings[0]}
	}
}

func (c *Client) currentPartial(now time.Time) string {
	maps.DeleteFunc(c.partial, func(_ string, p partialAnswer) bool { return now.Sub(p.at) > partialFor })
	if len(c.partial) == 0 {
		return ""
	}
	return c.partial[slices.Min(slices.Collect(maps.Keys(c.partial)))].why
}

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
	var e *Error
	return errors.As(err, &e) && (e.Reason == ReasonUnavailable || e.Reason == ReasonTimeout || e.Reason == ReasonBadQuery && e.Status != 400)
}

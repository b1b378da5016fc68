package query

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// partialKey identifies a query of one endpoint. cluster is empty if the endpoint serves all
// clusters.
type partialKey struct{ cluster, expr string }

func (k partialKey) compare(other partialKey) int {
	return cmp.Or(strings.Compare(k.cluster, other.cluster), strings.Compare(k.expr, other.expr))
}

// partialResult records that the most recent result of an expression was partial.
type partialResult struct {
	at     time.Time
	reason string
}

// partialTTL is how long Health reports a partial result if the expression is not
// queried again.
const partialTTL = 5 * time.Minute

// recordPartial records whether the result of a query was partial. A full result of another
// query does not clear the record: it may come from other stores, or from none.
func (c *Client) recordPartial(key partialKey, result Result, err error) {
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.partial, key)
	if result.Partial {
		c.partial[key] = partialResult{time.Now(), result.PartialReason}
	}
}

// partialReason returns the reason of a recent partial result, or "". The caller must
// hold c.mu.
func (c *Client) partialReason(now time.Time) string {
	maps.DeleteFunc(c.partial, func(_ partialKey, p partialResult) bool { return now.Sub(p.at) > partialTTL })
	if len(c.partial) == 0 {
		return ""
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(c.partial)), partialKey.compare)
	return c.partial[first].reason
}

// queryPartial runs a failed query again and accepts the data of the stores that respond.
// Only Thanos supports this. If the second query fails too, the error of the first is
// returned.
func (c *Client) queryPartial(ctx context.Context, e *endpoint, expr string, at time.Time, failure error) (Result, error) {
	if c.cfg.Parameters.Get(partialResponseParameter) != "false" || !canBePartial(failure) {
		return Result{}, failure
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, allowPartialKey{}, true), c.cfg.Timeout)
	defer cancel()
	result, _, second := c.send(ctx, e, expr, at)
	if second != nil {
		return Result{}, failure
	}
	return result, nil
}

// canBePartial reports whether an unresponsive store can be the cause of err.
func canBePartial(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Reason == ReasonUnavailable || e.Reason == ReasonTimeout || e.Reason == ReasonBadQuery && e.Status != http.StatusBadRequest)
}

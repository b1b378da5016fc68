package query

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	attempts   = 3
	firstPause = 100 * time.Millisecond
)

func (c *Client) retry(ctx context.Context, base, expr string, at time.Time) (Answer, error) {
	return attempt(ctx, c, func() (Answer, time.Duration, *Error) { return c.ask(ctx, base, expr, at) })
}

// attempt asks up to three times, within the deadline of ctx, while a further try
// can help. Pauses grow and are jittered; Retry-After is kept to.
func attempt[T any](ctx context.Context, c *Client, ask func() (T, time.Duration, *Error)) (T, error) {
	var none T
	pause := firstPause
	for try := 1; ; try++ {
		answer, after, failure := ask()
		if failure == nil {
			return answer, nil
		}
		if try == attempts || !failure.retriable() {
			return none, failure
		}
		wait := max(after, pause/2+rand.N(pause))
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return none, failure
		}
		c.cfg.Metrics.retry(c.cfg.Name, failure.Reason)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return none, failure
		}
		pause *= 2
	}
}

// retryAfter reads seconds or an HTTP date; 0 when there is none.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 3600)) * time.Second
	}
	if t, err := http.ParseTime(header); err == nil && t.After(now) {
		return t.Sub(now)
	}
	return 0
}

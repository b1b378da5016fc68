package fairqueue

import (
	"testing"
	"time"
)

// An outage of the API server fails 10,000 requests for half an hour. Each of them is repeated soon
// after its end.
func TestRetriesAfterAnOutage(t *testing.T) {
	const longest = 30 * time.Second
	limiter := RetryLimiter(longest)
	if first := limiter.When(request("team-a", 0)); first > time.Second {
		t.Errorf("the first retry comes after %s", first)
	}
	for range 60 {
		for i := range 10_000 {
			if delay := limiter.When(request("team-a", i)); delay > longest {
				t.Fatalf("request %d is repeated after %s, want at most %s", i, delay, longest)
			}
		}
	}
	limiter.Forget(request("team-a", 0))
	if delay := limiter.When(request("team-a", 0)); delay > time.Second {
		t.Errorf("after a success, the first retry comes after %s", delay)
	}
}

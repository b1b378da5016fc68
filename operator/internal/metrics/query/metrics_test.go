package query

import "testing"

func TestReasonLabelKnowsEveryReason(t *testing.T) {
	for _, reason := range []Reason{
		ReasonBadQuery, ReasonTimeout, ReasonRateLimited, ReasonUnavailable, ReasonUnreachable,
		ReasonUnauthorized, ReasonBadTLS, ReasonBadResponse, ReasonTooLarge, ReasonCanceled,
	} {
		t.Run(string(reason), func(t *testing.T) {
			if got := reasonLabel(reason); got == "unknown" {
				t.Errorf("reason %s has no label value", reason)
			}
		})
	}
}

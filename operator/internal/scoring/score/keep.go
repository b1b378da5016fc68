package score

import (
	"cmp"
	"fmt"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// The defaults of the schema, in seconds. The specs of files lack them.
const (
	defaultPeriod   = 30
	defaultMaxAge   = 120
	defaultKeepLast = 300
)

// KeepProblem says what is wrong with a keep time that can end before the round that needs it, or
// "". The keep time starts at the time of the last usable sample, and the next round is a period
// after the round that used the sample. A score without a keep time is intended.
func KeepProblem(spec *v1alpha1.ScoringPolicySpec, s *v1alpha1.ScoreSpec) string {
	period, age := cmp.Or(spec.PeriodSeconds, defaultPeriod), int32(0)
	next := fmt.Sprintf("the next round is %d s later", period)
	if f := spec.Freshness; f != nil {
		age = cmp.Or(f.MaxAgeSeconds, defaultMaxAge)
		next = fmt.Sprintf("a sample may be %d s old, and %s", age, next)
	}
	if keepLast := valueOr(s.Missing.KeepLastSeconds, defaultKeepLast); keepLast == 0 || keepLast > period+age {
		return ""
	}
	return fmt.Sprintf("must be more than %d, or 0 to keep none: %s. One failed query can set the fleet to -100", period+age, next)
}

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

// keepLast is the keep time of a score in seconds. By default, one failed round does not end it.
func keepLast(spec *v1alpha1.ScoringPolicySpec, s *v1alpha1.ScoreSpec) int32 {
	if s.Missing.KeepLastSeconds != nil {
		return *s.Missing.KeepLastSeconds
	}
	return max(defaultKeepLast, 2*cmp.Or(spec.PeriodSeconds, defaultPeriod)+maxAge(spec))
}

// maxAge is the age that a sample may have, in seconds; 0 = it does not count.
func maxAge(spec *v1alpha1.ScoringPolicySpec) int32 {
	if spec.Freshness == nil {
		return 0
	}
	return cmp.Or(spec.Freshness.MaxAgeSeconds, defaultMaxAge)
}

// KeepProblem says what is wrong with a keep time that can end before the round that needs it, or
// "". The keep time starts at the time of the last usable sample, and the next round is a period
// after the round that used the sample. A score without a keep time is intended.
func KeepProblem(spec *v1alpha1.ScoringPolicySpec, s *v1alpha1.ScoreSpec) string {
	period, age := cmp.Or(spec.PeriodSeconds, defaultPeriod), maxAge(spec)
	next := fmt.Sprintf("the next round is %d s later", period)
	if age > 0 {
		next = fmt.Sprintf("a sample may be %d s old, and %s", age, next)
	}
	if keep := keepLast(spec, s); keep == 0 || keep > period+age {
		return ""
	}
	return fmt.Sprintf("must be more than %d, or 0 to keep none: %s. One failed query can set the fleet to -100", period+age, next)
}

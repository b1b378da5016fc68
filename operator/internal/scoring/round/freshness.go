package round

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// timedSeries matches the numbers of devices and resources that the rules of the group plimsoll-nodes record. Their samples are
// those of the recorded sample time. Utilization, power and demand may be those of another exporter.
var timedSeries = regexp.MustCompile(`^[a-z_]+:(plimsoll_((free|usable|allocated|unhealthy|unusable|node_free|free_group|fragmented)_)?devices|plimsoll_(fits|free_mig_instances|free_share|share_capacity)|kube_(unrequested|allocatable)):(sum|min|max|placeable)$`)

// HasSampleTime reports whether a query reads a series for which the shipped rules record the time of the
// samples. The age of its result then counts without a freshness query of the policy.
func HasSampleTime(query string) bool {
	return slices.ContainsFunc(promql.Metrics(query), timedSeries.MatchString)
}

// addDefaultAge sets the freshness query of a policy that has none, and returns the scores to which it applies; nil = none.
// A query that can't be parsed counts as one with an age: its own error is the one to report, and the other scores go on.
func addDefaultAge(spec *v1alpha1.ScoringPolicySpec) (isAged []bool, err error) {
	for i := range spec.Scores {
		q := spec.Scores[i].Query
		isAged = append(isAged, HasSampleTime(q) || spec.Freshness != nil && promql.Check(q) != nil)
	}
	switch {
	case slices.Contains(isAged, true):
	case spec.Freshness != nil:
		return nil, errors.New("freshness.query: must be set, because no score reads a number of devices of the shipped recording rules, whose sample time is known")
	default:
		return nil, nil
	}
	if spec.Freshness == nil {
		spec.Freshness = &v1alpha1.Freshness{}
	}
	spec.Freshness.Query = v1alpha1.DefaultFreshnessQuery
	return isAged, nil
}

// judgeFreshness applies the age of samples to the scores that have one. It returns the report of its
// query, and the clusters whose age was known in this round or before. names are those of the scores.
func (results queryResults) judgeFreshness(samples *score.Samples, names []string, isAged []bool, req Request, matched map[string]bool) (*QueryReport, map[string]bool) {
	report, ages := results.read(req.Spec.Freshness.Query, req.Clusters, matched)
	known := knownAges(samples.Clusters, ages, req.Previous)
	if report.Optional = req.Policy.Aged != nil; report.Optional {
		report.excuseUnknownAges(samples, ages, isAged, known)
	}
	var aged [][]score.Input
	var agedNames []string
	for i, inputs := range samples.Scores {
		if isAged[i] {
			aged, agedNames = append(aged, inputs), append(agedNames, names[i])
		}
	}
	hadValue := func(cluster int) bool {
		return req.Previous.HadValue(samples.Clusters[cluster], agedNames, req.Now)
	}
	durations := applyFreshness(ages, aged, req.Policy.MaxAge, hadValue)
	samples.Age = make([][]time.Duration, len(samples.Scores))
	for i := range samples.Age {
		if isAged[i] {
			samples.Age[i] = durations
		}
	}
	return &report, known
}

// knownAges returns the clusters whose age is known, or was known in an earlier round.
func knownAges(clusters []string, ages []score.Input, previous *score.Result) map[string]bool {
	known := map[string]bool{}
	for i, cluster := range clusters {
		if ages[i].Outcome == score.OK || previous != nil && previous.AgeKnown[cluster] {
			known[cluster] = true
		}
	}
	return known
}

// excuseUnknownAges makes the default query not count for clusters whose age was never known, and warns of
// those that have a value: a source may have the free devices of some clusters, or of all, without their sample times. Before the
// first known age, a failure of the query is no reason to distrust the values either.
func (q *QueryReport) excuseUnknownAges(samples *score.Samples, ages []score.Input, isAged []bool, known map[string]bool) {
	var excused []string
	for cluster, name := range samples.Clusters {
		if known[name] {
			continue
		}
		ages[cluster] = score.Input{}
		for i, inputs := range samples.Scores {
			if isAged[i] && inputs[cluster].Outcome == score.OK {
				excused = append(excused, name)
				break
			}
		}
	}
	switch {
	case len(known) > 0 && len(excused) > 0:
		q.Warnings = append(q.Warnings, fmt.Sprintf("%d clusters have no sample time, such as %s: the age of their samples does not count", len(excused), excused[0]))
	case len(known) > 0:
	case q.Err != nil:
		q.Warnings = append(q.Warnings, "the age of samples does not count until the query succeeds: "+q.Err.Error())
		q.Err = nil
	case q.NoMatch != nil || len(excused) > 0:
		q.Warnings = []string{"no cluster has the series: the age of samples does not count. Set freshness.query of the policy"}
		q.NoMatch = nil
	}
}

// applyFreshness returns the sample age of each cluster. It replaces the usable values of
// a cluster by Stale if the age exceeds maxAge or is unknown, and by Failed, Invalid or
// Unmatched if the freshness query says nothing about any cluster. An absent value is Stale
// as well if the samples of the cluster are too old, or of unknown age although the cluster had a
// value within a day: a freshness query reads a limited range, and finds nothing of a cluster
// that died before.
func applyFreshness(ages []score.Input, scores [][]score.Input, maxAge time.Duration, hadValue func(cluster int) bool) []time.Duration {
	durations := make([]time.Duration, len(ages))
	for cluster, age := range ages {
		outcome := age.Outcome
		switch outcome {
		case score.OK:
			durations[cluster] = time.Duration(max(age.Value, 0) * float64(time.Second))
			if age.Value > maxAge.Seconds() || isFromTheFuture(age.Value) {
				outcome = score.Stale
			}
		case score.Failed, score.Invalid, score.Unmatched:
		default:
			outcome = score.Stale
		}
		if outcome == score.OK {
			continue
		}
		lost := age.Outcome == score.OK || outcome == score.Stale && hadValue(cluster)
		for _, inputs := range scores {
			if o := inputs[cluster].Outcome; o == score.OK || o == score.Absent && lost {
				inputs[cluster] = score.Input{Outcome: outcome}
			}
		}
	}
	return durations
}

// isFromTheFuture reports whether an age in seconds is negative by more than clocks may differ.
// Such samples would never become old: the clock of a node is wrong, or the query subtracts the
// time from the timestamp.
func isFromTheFuture(age float64) bool { return age < -timing.MaxClockSkew.Seconds() }

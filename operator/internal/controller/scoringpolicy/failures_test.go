//go:build integration

package scoringpolicy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func vector(results ...string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(results, ",") + `]}}`
}

func series(cluster, value string) string {
	return fmt.Sprintf(`{"metric":{"cluster":%q},"value":[1,%q]}`, cluster, value)
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// hang answers only when the asker has given up.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// million sends a million series, as a query without an aggregation might.
func million(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[`)
	for i := range 1_000_000 {
		if _, err := fmt.Fprintf(w, `{"metric":{"cluster":"c","pod":"p%d"},"value":[1,"1"]},`, i); err != nil {
			return
		}
	}
	_, _ = io.WriteString(w, `{"metric":{"cluster":"c"},"value":[1,"1"]}]}}`)
}

// TestEveryFailureHasItsOutcome lets a source fail in each way: nothing is written
// for a cluster of which nothing is known, what is published is held, the condition
// and an event say why, and all is well again once the source is, without a restart.
func TestEveryFailureHasItsOutcome(t *testing.T) {
	operator(t)
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc // nil: nobody listens any more
		fresh  string           // condition DataFresh of the policy
		says   string           // in its message
		source string           // condition Reachable of the source, when it turns
	}{
		{"down", nil, "False/Unreachable", "connection refused", "False/Unreachable"},
		{"slow", hang, "False/Timeout", "got no answer", "False/Timeout"},
		{"429", says(429, ""), "False/RateLimited", "Too Many Requests", "False/RateLimited"},
		{"503", says(503, "upstream is down"), "False/Unavailable", "upstream is down", "False/Unavailable"},
		{"garbage", says(200, "\x00\xff{"), "False/BadResponse", "not Prometheus's JSON", "False/BadResponse"},
		{"html", says(200, "<html><body>Log in</body></html>"), "False/BadResponse", "Log in", "False/BadResponse"},
		{"unauthorized", says(401, "who are you"), "False/Unauthorized", "who are you", "False/Unauthorized"},
		{"million", million, "False/TooLarge", "limits.max", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			name := "fails-" + strings.ToLower(tc.name)
			known, unknown := name+"-1", name+"-2"
			prom := newPrometheus(t)
			prom.set("free", map[string]string{known: "3"})
			cluster(t, known, map[string]string{"fleet": name})
			s := source(name, prom.URL)
			s.Spec.Limits.TimeoutSeconds = 2
			create(t, s)
			create(t, policy(name))
			eventually(t, func(g gomega.Gomega) {
				g.Expect(values(g, known, name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
			})
			if tc.answer == nil {
				prom.stop()
			} else {
				prom.failWith(tc.answer)
			}
			cluster(t, unknown, map[string]string{"fleet": name})
			eventually(t, func(g gomega.Gomega) {
				fresh, message := condition(g, name, v1alpha1.ConditionDataFresh)
				g.Expect(fresh).To(gomega.Equal(tc.fresh))
				g.Expect(message).To(gomega.ContainSubstring(tc.says))
				g.Expect(eventReasons(g, "ScoringPolicy", name)).To(gomega.ContainElement(strings.TrimPrefix(tc.fresh, "False/")))
				held := meta.FindStatusCondition(score(g, known, name).Status.Conditions, "DataFresh")
				g.Expect(held.Reason).To(gomega.Equal("Held"))
				g.Expect(held.Message).To(gomega.ContainSubstring("free: Failed since"))
			})
			if tc.source != "" {
				eventually(t, func(g gomega.Gomega) {
					g.Expect(sourceCondition(g, name, v1alpha1.ConditionReachable)).To(gomega.Equal(tc.source))
					g.Expect(eventReasons(g, "MetricsSource", name)).To(gomega.ContainElement(strings.TrimPrefix(tc.source, "False/")))
				})
			}
			g := gomega.NewWithT(t)
			g.Expect(values(g, known, name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
			g.Expect(values(g, unknown, name)).To(gomega.BeNil(), "nothing is known of it")
			prom.set("free", map[string]string{known: "4", unknown: "5"})
			if tc.answer == nil {
				prom.startAgain(t)
			} else {
				prom.failWith(nil)
			}
			eventually(t, func(g gomega.Gomega) {
				g.Expect(values(g, known, name)).To(gomega.Equal(scores{"free": 40, "total": 40}))
				g.Expect(values(g, unknown, name)).To(gomega.Equal(scores{"free": 50, "total": 50}))
				ready, _ := condition(g, name, v1alpha1.ConditionReady)
				g.Expect(ready).To(gomega.Equal("True/Ready"))
			})
		})
	}
}

// TestEverySampleHasItsOutcome lets one cluster's samples go wrong while another's
// are right: the other one's score moves on, the one's is held, then worst.
func TestEverySampleHasItsOutcome(t *testing.T) {
	operator(t)
	for _, tc := range []struct {
		name   string
		free   []string // of the cluster
		age    string
		why    string // outcome in the score's condition
		reason string // of the condition once the hold is over
	}{
		{"nan", []string{"NaN"}, "1", "NaN", "Missing"},
		{"plusinf", []string{"+Inf"}, "1", "Infinite", "Missing"},
		{"minusinf", []string{"-Inf"}, "1", "Infinite", "Missing"},
		{"duplicate", []string{"3", "4"}, "1", "Duplicate", "Missing"},
		{"absent", nil, "1", "Absent", "Missing"},
		{"old", []string{"3"}, "600", "Stale", "Stale"},
		{"ageless", []string{"3"}, "", "Stale", "Stale"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			name := "sample-" + tc.name
			bad, good := name+"-bad", name+"-good"
			prom := newPrometheus(t)
			answer := func(free []string, goodFree, age string) {
				samples := []string{series(good, goodFree)}
				for _, v := range free {
					samples = append(samples, series(bad, v))
				}
				ages := []string{series(good, "1")}
				if age != "" {
					ages = append(ages, series(bad, age))
				}
				prom.answer("free", vector(samples...))
				prom.answer("age", vector(ages...))
			}
			answer([]string{"3"}, "6", "1")
			cluster(t, bad, map[string]string{"fleet": name})
			cluster(t, good, map[string]string{"fleet": name})
			create(t, source(name, prom.URL))
			p := policy(name)
			hold := int32(4)
			p.Spec.Scores[0].Missing.HoldSeconds = &hold
			p.Spec.Freshness = &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: 60}
			create(t, p)
			eventually(t, func(g gomega.Gomega) {
				g.Expect(values(g, bad, name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
			})
			answer(tc.free, "7", tc.age)
			eventually(t, func(g gomega.Gomega) {
				c := meta.FindStatusCondition(score(g, bad, name).Status.Conditions, "DataFresh")
				g.Expect(c.Reason).To(gomega.Equal("Held"))
				g.Expect(c.Message).To(gomega.ContainSubstring("free: " + tc.why + " since"))
				g.Expect(values(g, bad, name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
				g.Expect(values(g, good, name)).To(gomega.Equal(scores{"free": 70, "total": 70}))
			})
			eventually(t, func(g gomega.Gomega) {
				c := meta.FindStatusCondition(score(g, bad, name).Status.Conditions, "DataFresh")
				g.Expect(c.Reason).To(gomega.Equal(tc.reason))
				g.Expect(values(g, bad, name)).To(gomega.Equal(scores{"free": -100, "total": -100}))
				fresh, message := condition(g, name, v1alpha1.ConditionDataFresh)
				g.Expect(fresh).To(gomega.Equal("False/" + tc.reason))
				g.Expect(message).To(gomega.Equal("1 of 2 clusters lack a fresh value: " + bad))
				g.Expect(eventReasons(g, "ScoringPolicy", name)).To(gomega.ContainElement(tc.reason))
			})
			answer([]string{"8"}, "7", "1")
			eventually(t, func(g gomega.Gomega) {
				g.Expect(values(g, bad, name)).To(gomega.Equal(scores{"free": 80, "total": 80}))
				ready, _ := condition(g, name, v1alpha1.ConditionReady)
				g.Expect(ready).To(gomega.Equal("True/Ready"))
			})
		})
	}
}

// TestAllSamplesOldHoldsTheRound: that every sample is old says more about the
// source than about the clusters, so nobody becomes the worst before the hold ends.
func TestAllSamplesOldHoldsTheRound(t *testing.T) {
	prom := newPrometheus(t)
	free, young, old := map[string]string{}, map[string]string{}, map[string]string{}
	for i := range 4 {
		name := fmt.Sprintf("allold-%d", i)
		cluster(t, name, map[string]string{"fleet": "allold"})
		free[name], young[name], old[name] = "3", "1", "600"
	}
	prom.set("free", free)
	prom.set("age", young)
	create(t, source("allold", prom.URL))
	p := policy("allold")
	p.Spec.Freshness = &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: 60}
	create(t, p)
	operator(t)
	eventually(t, func(g gomega.Gomega) {
		ready, _ := condition(g, "allold", v1alpha1.ConditionReady)
		g.Expect(ready).To(gomega.Equal("True/Ready"))
	})
	prom.set("age", old)
	eventually(t, func(g gomega.Gomega) {
		fresh, message := condition(g, "allold", v1alpha1.ConditionDataFresh)
		g.Expect(fresh).To(gomega.Equal("False/TooFewFresh"))
		g.Expect(message).To(gomega.ContainSubstring("only 0 of 4 known clusters answer fresh"))
		for name := range free {
			g.Expect(values(g, name, "allold")).To(gomega.Equal(scores{"free": 30, "total": 30}))
			c := meta.FindStatusCondition(score(g, name, "allold").Status.Conditions, "DataFresh")
			g.Expect(c.Reason).To(gomega.Equal("Held"))
		}
		g.Expect(eventReasons(g, "ScoringPolicy", "allold")).To(gomega.ContainElement("TooFewFresh"))
	})
	prom.set("age", young)
	eventually(t, func(g gomega.Gomega) {
		ready, _ := condition(g, "allold", v1alpha1.ConditionReady)
		g.Expect(ready).To(gomega.Equal("True/Ready"))
	})
}

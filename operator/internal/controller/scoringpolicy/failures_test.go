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

func respondWith(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// hang responds only after the client has disconnected.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// sendManySeries responds like a query without an aggregation.
func sendManySeries(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[`)
	for i := range 120_000 {
		if _, err := fmt.Fprintf(w, `{"metric":{"cluster":"c","pod":"p%d"},"value":[1,"1"]},`, i); err != nil {
			return
		}
	}
	_, _ = io.WriteString(w, `{"metric":{"cluster":"c"},"value":[1,"1"]}]}}`)
}

// TestSourceFailures lets a source fail in each way:
//
//  1. A cluster that never had a value gets no score.
//  2. Published scores are kept. The condition and an event state the reason.
//  3. After the source recovers, the policy recovers without a restart.
func TestSourceFailures(t *testing.T) {
	startOperator(t)
	for _, tc := range []struct {
		name     string
		response http.HandlerFunc // nil: the connection is refused
		fresh    string           // condition DataFresh of the policy
		message  string           // part of the condition's message
		source   string           // condition Reachable of the source, if it changes
	}{
		{"down", nil, "False/Unreachable", "connection refused", "False/Unreachable"},
		{"slow", hang, "False/Timeout", "scores[free].query failed", "False/Timeout"},
		{"429", respondWith(429, ""), "False/RateLimited", "Too Many Requests", "False/RateLimited"},
		{"503", respondWith(503, "upstream is down"), "False/Unavailable", "Service Unavailable", "False/Unavailable"},
		{"garbage", respondWith(200, "\x00\xff{"), "False/BadResponse", "not Prometheus JSON", "False/BadResponse"},
		{"html", respondWith(200, "<html><body>Log in</body></html>"), "False/BadResponse", "not Prometheus JSON", "False/BadResponse"},
		{"unauthorized", respondWith(401, "who are you"), "False/Unauthorized", "scores[free].query failed: Unauthorized", "False/Unauthorized"},
		{"many", sendManySeries, "False/TooLarge", "advanced.max", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			name := "fails-" + strings.ToLower(tc.name)
			known, unknown := name+"-1", name+"-2"
			prom := newPrometheus(t)
			prom.set("free", map[string]string{known: "3"})
			createCluster(t, known, map[string]string{"fleet": name})
			s := source(name, prom.URL)
			s.Spec.Advanced.TimeoutSeconds = 10 // the race detector slows down the decoding of a large response
			if tc.name == "slow" {
				s.Spec.Advanced.TimeoutSeconds = 2
			}
			create(t, s)
			create(t, policy(name))
			eventually(t, func(g gomega.Gomega) {
				g.Expect(values(g, known, name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
			})
			if tc.response == nil {
				prom.stop()
			} else {
				prom.failWith(tc.response)
			}
			createCluster(t, unknown, map[string]string{"fleet": name})
			eventually(t, func(g gomega.Gomega) {
				fresh, message := condition(g, name, v1alpha1.ConditionDataFresh)
				g.Expect(fresh).To(gomega.Equal(tc.fresh))
				g.Expect(message).To(gomega.ContainSubstring(tc.message))
				g.Expect(eventReasons(g, "ScoringPolicy", name)).To(gomega.ContainElement(strings.TrimPrefix(tc.fresh, "False/")))
				kept := meta.FindStatusCondition(score(g, known, name).Status.Conditions, "DataFresh")
				g.Expect(kept.Reason).To(gomega.Equal("Kept"))
				g.Expect(kept.Message).To(gomega.ContainSubstring("free: Failed since"))
			})
			if tc.source != "" {
				eventually(t, func(g gomega.Gomega) {
					g.Expect(sourceCondition(g, name, v1alpha1.ConditionReachable)).To(gomega.Equal(tc.source))
					g.Expect(eventReasons(g, "MetricsSource", name)).To(gomega.ContainElement(strings.TrimPrefix(tc.source, "False/")))
				})
			}
			g := gomega.NewWithT(t)
			g.Expect(values(g, known, name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
			g.Expect(values(g, unknown, name)).To(gomega.BeNil(), "the cluster never had a value")
			prom.set("free", map[string]string{known: "4", unknown: "5"})
			if tc.response == nil {
				prom.restart(t)
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

// TestUnusableSamples makes the samples of one cluster unusable. The score of this cluster
// is kept, and then becomes the worst. The score of the other cluster stays up to date.
func TestUnusableSamples(t *testing.T) {
	startOperator(t)
	for _, tc := range []struct {
		name    string
		free    []string // values of the cluster
		age     string
		outcome string // in the condition of the score
		reason  string // of the condition after the keep time
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
			respond := func(free []string, goodFree, age string) {
				samples := []string{series(good, goodFree)}
				for _, v := range free {
					samples = append(samples, series(bad, v))
				}
				ages := []string{series(good, "1")}
				if age != "" {
					ages = append(ages, series(bad, age))
				}
				prom.setBody("free", vector(samples...))
				prom.setBody("age", vector(ages...))
			}
			respond([]string{"3"}, "6", "1")
			createCluster(t, bad, map[string]string{"fleet": name})
			createCluster(t, good, map[string]string{"fleet": name})
			create(t, source(name, prom.URL))
			p := policy(name)
			keepLast := int32(4)
			p.Spec.Scores[0].Missing.KeepLastSeconds = &keepLast
			p.Spec.Freshness = &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: 60}
			create(t, p)
			eventually(t, func(g gomega.Gomega) {
				g.Expect(values(g, bad, name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
			})
			respond(tc.free, "7", tc.age)
			eventually(t, func(g gomega.Gomega) {
				c := meta.FindStatusCondition(score(g, bad, name).Status.Conditions, "DataFresh")
				g.Expect(c.Reason).To(gomega.Equal("Kept"))
				g.Expect(c.Message).To(gomega.ContainSubstring("free: " + tc.outcome + " since"))
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
			respond([]string{"8"}, "7", "1")
			eventually(t, func(g gomega.Gomega) {
				g.Expect(values(g, bad, name)).To(gomega.Equal(scores{"free": 80, "total": 80}))
				ready, _ := condition(g, name, v1alpha1.ConditionReady)
				g.Expect(ready).To(gomega.Equal("True/Ready"))
			})
		})
	}
}

// TestAllSamplesOldKeepsTheScores: if all samples are too old, the source is broken rather
// than the clusters. No cluster gets the worst score before the keep time ends.
func TestAllSamplesOldKeepsTheScores(t *testing.T) {
	prom := newPrometheus(t)
	free, young, old := map[string]string{}, map[string]string{}, map[string]string{}
	for i := range 4 {
		name := fmt.Sprintf("allold-%d", i)
		createCluster(t, name, map[string]string{"fleet": "allold"})
		free[name], young[name], old[name] = "3", "1", "600"
	}
	prom.set("free", free)
	prom.set("age", young)
	create(t, source("allold", prom.URL))
	p := policy("allold")
	p.Spec.Freshness = &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: 60}
	create(t, p)
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		ready, _ := condition(g, "allold", v1alpha1.ConditionReady)
		g.Expect(ready).To(gomega.Equal("True/Ready"))
	})
	prom.set("age", old)
	eventually(t, func(g gomega.Gomega) {
		fresh, message := condition(g, "allold", v1alpha1.ConditionDataFresh)
		g.Expect(fresh).To(gomega.Equal("False/TooFewFresh"))
		g.Expect(message).To(gomega.ContainSubstring("only 0 of 4 recently healthy clusters have a fresh value"))
		for name := range free {
			g.Expect(values(g, name, "allold")).To(gomega.Equal(scores{"free": 30, "total": 30}))
			c := meta.FindStatusCondition(score(g, name, "allold").Status.Conditions, "DataFresh")
			g.Expect(c.Reason).To(gomega.Equal("Kept"))
		}
		g.Expect(eventReasons(g, "ScoringPolicy", "allold")).To(gomega.ContainElement("TooFewFresh"))
	})
	prom.set("age", young)
	eventually(t, func(g gomega.Gomega) {
		ready, _ := condition(g, "allold", v1alpha1.ConditionReady)
		g.Expect(ready).To(gomega.Equal("True/Ready"))
	})
}

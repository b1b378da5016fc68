//go:build integration

package scoringpolicy_test

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLabelChangesRunOnlyTheAffectedPolicies relabels a cluster. Only the policy that the
// cluster joins runs a round, and one for all changes.
func TestLabelChangesRunOnlyTheAffectedPolicies(t *testing.T) {
	prom := newPrometheus(t)
	var mu sync.Mutex
	sent := map[string]int{}
	prom.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		sent[r.FormValue("query")]++
		mu.Unlock()
		prom.ServeHTTP(w, r)
	})
	counts := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(sent)
	}
	create(t, source("churn", prom.URL))
	for _, fleet := range []string{"churn-a", "churn-b"} {
		createCluster(t, fleet+"-1", map[string]string{"fleet": fleet})
		p := policy(fleet)
		p.Spec.SourceRef.Name, p.Spec.PeriodSeconds = "churn", 86400
		p.Spec.Scores[0].Query = "free_" + fleet[len(fleet)-1:]
		p.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": fleet}}
		create(t, p)
		prom.set(p.Spec.Scores[0].Query, map[string]string{fleet + "-1": "3", "churn-new": "4"})
	}
	createCluster(t, "churn-new", map[string]string{})
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		for _, fleet := range []string{"churn-a", "churn-b"} {
			g.Expect(values(g, fleet+"-1", fleet)).To(gomega.HaveKeyWithValue("free", int32(30)))
		}
	})
	// The source becomes reachable with its first response, and that causes a second round, a
	// second after the first. The labels change after it.
	var before map[string]int
	gomega.NewWithT(t).Eventually(func(g gomega.Gomega) {
		last := before
		before = counts()
		g.Expect(before).To(gomega.Equal(last), "rounds within the last 3 seconds")
	}).WithPolling(3 * time.Second).WithTimeout(time.Minute).Should(gomega.Succeed())
	for i := range 20 {
		relabel(t, "churn-new", map[string]string{"fleet": "churn-a", "i": strconv.Itoa(i)})
	}
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "churn-new", "churn-a")).To(gomega.HaveKeyWithValue("free", int32(40)))
	})
	gomega.NewWithT(t).Consistently(func(g gomega.Gomega) {
		after := counts()
		g.Expect(after["free_a"]-before["free_a"]).To(gomega.Equal(1), "rounds of the policy that the cluster joined")
		g.Expect(after["free_b"]-before["free_b"]).To(gomega.Equal(0), "rounds of the other policy")
	}).WithTimeout(3 * time.Second).Should(gomega.Succeed())
}

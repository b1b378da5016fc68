//go:build integration

package scoringpolicy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// TestPlacementDuringAnOutageOfMostClusters: three of four clusters lose their metrics. OCM
// stays with the last scores during the keep time, and then chooses the only cluster with fresh
// metrics.
func TestPlacementDuringAnOutageOfMostClusters(t *testing.T) {
	const name = "outage"
	prom := newPrometheus(t)
	free := map[string]string{}
	for i := 1; i <= 4; i++ {
		cluster := fmt.Sprintf("%s-%d", name, i)
		createCluster(t, cluster, map[string]string{"fleet": name})
		free[cluster] = fmt.Sprint(2 * i)
	}
	prom.set("free", free)
	create(t, source(name, prom.URL))
	p := policy(name)
	keepLast := int32(4)
	p.Spec.Scores[0].Missing.KeepLastSeconds = &keepLast
	create(t, p)
	startOperator(t)
	startPlacementController(t)
	create(t, placement(name, "total", 1))
	eventually(t, func(g gomega.Gomega) { g.Expect(decided(g, name)).To(gomega.Equal([]string{"outage-4"})) })

	prom.set("free", map[string]string{"outage-1": "3"})
	eventually(t, func(g gomega.Gomega) {
		fresh, _ := condition(g, name, v1alpha1.ConditionDataFresh)
		g.Expect(fresh).To(gomega.Equal("False/TooFewFresh"))
		g.Expect(values(g, "outage-1", name)).To(gomega.Equal(scores{"free": 20, "total": 20}))
		g.Expect(decided(g, name)).To(gomega.Equal([]string{"outage-4"}))
	})
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "outage-1", name)["total"]).To(gomega.BeNumerically(">=", 20), "a fresh cluster must never get -100")
		g.Expect(values(g, "outage-1", name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
		g.Expect(values(g, "outage-4", name)).To(gomega.Equal(scores{"free": -100, "total": -100}))
		g.Expect(decided(g, name)).To(gomega.Equal([]string{"outage-1"}))
	})
	prom.set("free", map[string]string{"outage-1": "5"})
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "outage-1", name)).To(gomega.Equal(scores{"free": 50, "total": 50}))
	})
}

// TestPlacementAtTheEndOfAKeepTime: a keep time ends between two rounds. The score becomes -100 at
// the end of the keep time, minutes before the next round. The fresh score in the same object does
// not expire, and OCM leaves the cluster.
func TestPlacementAtTheEndOfAKeepTime(t *testing.T) {
	const name = "keepend"
	prom := newPrometheus(t)
	createCluster(t, "keepend-1", map[string]string{"fleet": name})
	createCluster(t, "keepend-2", map[string]string{"fleet": name})
	prom.set("free", map[string]string{"keepend-1": "10", "keepend-2": "1"})
	prom.set("nodes", map[string]string{"keepend-1": "5", "keepend-2": "5"})
	create(t, source(name, prom.URL))
	p := policy(name)
	keepLast := int32(10)
	p.Spec.PeriodSeconds, p.Spec.ValidForPeriods = 300, 3
	p.Spec.Scores = []v1alpha1.ScoreSpec{linearFull("free", "free", "0", "10"), linear("nodes", "nodes")}
	p.Spec.Scores[0].Missing.KeepLastSeconds = &keepLast
	create(t, p)
	startOperator(t)
	startPlacementController(t)
	create(t, placement(name, "free", 1))
	eventually(t, func(g gomega.Gomega) { g.Expect(decided(g, name)).To(gomega.Equal([]string{"keepend-1"})) })

	prom.set("free", map[string]string{"keepend-2": "1"})
	changed := p.DeepCopy()
	changed.Spec.PeriodSeconds++
	if err := api.Patch(t.Context(), changed, client.MergeFrom(p)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(g gomega.Gomega) {
		kept := meta.FindStatusCondition(score(g, "keepend-1", name).Status.Conditions, "score.plimsoll.dev/free")
		g.Expect(kept).NotTo(gomega.BeNil())
		g.Expect(kept.Reason).To(gomega.Equal("Kept"))
	})
	eventually(t, func(g gomega.Gomega) {
		object := score(g, "keepend-1", name)
		g.Expect(object.Status.ValidUntil.Time).To(gomega.BeTemporally(">", time.Now()), "the scores must not expire")
		g.Expect(values(g, "keepend-1", name)).To(gomega.HaveKeyWithValue("free", int32(-100)))
		g.Expect(values(g, "keepend-1", name)).To(gomega.HaveKeyWithValue("nodes", int32(50)))
		g.Expect(decided(g, name)).To(gomega.Equal([]string{"keepend-2"}))
	})
}

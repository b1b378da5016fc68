//go:build integration

package scoringpolicy_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// relabel replaces the labels of a ManagedCluster.
func relabel(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	c := &clusterv1.ManagedCluster{}
	if err := api.Get(context.Background(), client.ObjectKey{Name: name}, c); err != nil {
		t.Fatal(err)
	}
	before := c.DeepCopy()
	c.Labels = labels
	if err := api.Patch(context.Background(), c, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// TestClusterMappingByLabel maps series by a label of the ManagedCluster. The label
// changes, two clusters share a value, and a cluster leaves the policy.
func TestClusterMappingByLabel(t *testing.T) {
	const name = "mapped"
	labels := func(prom string) map[string]string { return map[string]string{"fleet": name, "prom": prom} }
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"east": "3", "west": "4", "mapped-1": "9"})
	createCluster(t, "mapped-1", labels("east"))
	createCluster(t, "mapped-2", labels("gone"))
	s := source(name, prom.URL)
	s.Spec.ClusterMapping = v1alpha1.ClusterMapping{Match: v1alpha1.MatchLabel, Key: "prom"}
	create(t, s)
	create(t, policy(name))
	startOperator(t)
	expect := func(first, second scores) {
		t.Helper()
		eventually(t, func(g gomega.Gomega) {
			g.Expect(values(g, "mapped-1", name)).To(gomega.Equal(first))
			g.Expect(values(g, "mapped-2", name)).To(gomega.Equal(second))
		})
	}
	expect(scores{"free": 30, "total": 30}, scores{"free": -100, "total": -100})
	relabel(t, "mapped-2", labels("west"))
	expect(scores{"free": 30, "total": 30}, scores{"free": 40, "total": 40})
	relabel(t, "mapped-2", labels("east"))
	eventually(t, func(g gomega.Gomega) {
		for _, c := range []string{"mapped-1", "mapped-2"} {
			g.Expect(score(g, c, name).Status.Conditions[0].Message).To(gomega.ContainSubstring("free: Duplicate since"))
		}
	})
	relabel(t, "mapped-2", map[string]string{"prom": "west"})
	expect(scores{"free": 30, "total": 30}, nil)
}

// TestPerClusterEndpoints has one endpoint that is down. Only its cluster is affected.
func TestPerClusterEndpoints(t *testing.T) {
	const name = "own"
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"any": "3"})
	prom.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, "/own-1")
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.URL.Path = path
		prom.ServeHTTP(w, r)
	})
	createCluster(t, "own-1", map[string]string{"fleet": name})
	createCluster(t, "own-2", map[string]string{"fleet": name})
	createCluster(t, "own-3", nil) // the policy does not select the cluster, so its endpoint gets no query
	s := source(name, "")
	s.Spec.URL, s.Spec.URLTemplate = "", prom.URL+"/{cluster}"
	create(t, s)
	create(t, policy(name))
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "own-1", name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
		g.Expect(values(g, "own-2", name)).To(gomega.BeNil(), "nothing is known about the cluster")
		g.Expect(sourceCondition(g, name, v1alpha1.ConditionReachable)).To(gomega.Equal("True/QuerySucceeded"))
		p := &v1alpha1.ScoringPolicy{}
		g.Expect(api.Get(context.Background(), client.ObjectKey{Name: name}, p)).To(gomega.Succeed())
		g.Expect(p.Status.Scores[0].Warnings).To(gomega.ContainElement(gomega.ContainSubstring("the endpoints of 1 clusters failed, first own-2: Unavailable")))
	})
}

// TestPoliciesWithTheSamePublishName: the second policy publishes nothing.
func TestPoliciesWithTheSamePublishName(t *testing.T) {
	const name = "shared"
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"shared-1": "3"})
	prom.set("other", map[string]string{"shared-1": "9"})
	createCluster(t, "shared-1", map[string]string{"fleet": name})
	create(t, source(name, prom.URL))
	create(t, policy(name))
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "shared-1", name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
	})
	second := policy(name)
	second.ObjectMeta = metav1.ObjectMeta{Name: "shared-second"}
	second.Spec.Scores, second.Spec.Publish.Name = []v1alpha1.ScoreSpec{linear("other", "other")}, name
	create(t, second)
	eventually(t, func(g gomega.Gomega) {
		out, _ := condition(g, "shared-second", v1alpha1.ConditionPublished)
		g.Expect(out).To(gomega.Equal("False/NameTaken"))
		g.Expect(eventReasons(g, "ScoringPolicy", "shared-second")).To(gomega.ContainElement("NameTaken"))
	})
	prom.set("free", map[string]string{"shared-1": "4"})
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "shared-1", name)).To(gomega.Equal(scores{"free": 40, "total": 40}))
	})
}

// TestDeletedScoresAreWrittenAgain: the period of the policies is a day. The name of the first policy becomes
// free for the second one, and someone deletes the object of the second one.
func TestDeletedScoresAreWrittenAgain(t *testing.T) {
	const name = "freed"
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"freed-1": "3"})
	createCluster(t, "freed-1", map[string]string{"fleet": name})
	create(t, source(name, prom.URL))
	first, second := policy(name), policy(name)
	second.ObjectMeta = metav1.ObjectMeta{Name: "freed-second"}
	first.Spec.PeriodSeconds, second.Spec.PeriodSeconds, second.Spec.Publish.Name = 86400, 86400, name
	create(t, first)
	startOperator(t)
	controller := func(g gomega.Gomega) string {
		s := score(g, "freed-1", name)
		g.Expect(s).NotTo(gomega.BeNil())
		g.Expect(values(g, "freed-1", name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
		return metav1.GetControllerOf(s).Name
	}
	eventually(t, func(g gomega.Gomega) { g.Expect(controller(g)).To(gomega.Equal(name)) })
	create(t, second)
	eventually(t, func(g gomega.Gomega) {
		out, _ := condition(g, second.Name, v1alpha1.ConditionPublished)
		g.Expect(out).To(gomega.Equal("False/NameTaken"))
	})
	if err := api.Delete(context.Background(), first); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(g gomega.Gomega) { g.Expect(controller(g)).To(gomega.Equal(second.Name)) })
	deleted := score(gomega.NewWithT(t), "freed-1", name)
	if err := api.Delete(context.Background(), deleted); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(g gomega.Gomega) {
		g.Expect(controller(g)).To(gomega.Equal(second.Name))
		g.Expect(score(g, "freed-1", name).UID).NotTo(gomega.Equal(deleted.UID))
		out, _ := condition(g, second.Name, v1alpha1.ConditionPublished)
		g.Expect(out).To(gomega.Equal("True/Published"))
	})
}

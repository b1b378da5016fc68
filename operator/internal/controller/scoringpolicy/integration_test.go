//go:build integration

package scoringpolicy_test

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

type scores = map[string]int32

func source(name, url string) *v1alpha1.MetricsSource {
	return &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MetricsSourceSpec{URL: url}}
}

// policy returns a policy with a period of one second and a score "free" that maps 0..10
// to 0..100. The policy selects the clusters with its name in the label "fleet".
func policy(name string) *v1alpha1.ScoringPolicy {
	return &v1alpha1.ScoringPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ScoringPolicySpec{
			SourceRef:       v1alpha1.LocalReference{Name: name},
			ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": name}},
			PeriodSeconds:   1, ValidForPeriods: 30,
			Scores: []v1alpha1.ScoreSpec{linear("free", "free")},
			Total:  &v1alpha1.TotalSpec{Name: "total"},
		},
	}
}

func linear(name, query string) v1alpha1.ScoreSpec {
	return v1alpha1.ScoreSpec{Name: name, Query: query, Normalize: v1alpha1.Normalize{
		Type: v1alpha1.NormalizeLinear, Linear: &v1alpha1.Linear{From: resource.MustParse("0"), To: resource.MustParse("10")},
	}}
}

// condition returns "Status/Reason" and the message of a condition of a policy.
func condition(g gomega.Gomega, name, kind string) (string, string) {
	p := &v1alpha1.ScoringPolicy{}
	g.Expect(api.Get(context.Background(), client.ObjectKey{Name: name}, p)).To(gomega.Succeed())
	c := meta.FindStatusCondition(p.Status.Conditions, kind)
	if c == nil {
		return "", ""
	}
	return string(c.Status) + "/" + c.Reason, c.Message
}

func TestScoresFollowTheMetrics(t *testing.T) {
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"follow-1": "3", "follow-2": "10", "unknown": "5"})
	createCluster(t, "follow-1", map[string]string{"fleet": "follow"})
	createCluster(t, "follow-2", map[string]string{"fleet": "follow"})
	create(t, source("follow", prom.URL))
	p := policy("follow")
	create(t, p)
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "follow-1", "follow")).To(gomega.Equal(scores{"free": 30, "total": 30}))
		g.Expect(values(g, "follow-2", "follow")).To(gomega.Equal(scores{"free": 100, "total": 100}))
		ready, _ := condition(g, "follow", v1alpha1.ConditionReady)
		g.Expect(ready).To(gomega.Equal("True/Ready"))
	})
	g := gomega.NewWithT(t)
	s := score(g, "follow-1", "follow")
	g.Expect(s.OwnerReferences).To(gomega.HaveLen(1))
	g.Expect(s.OwnerReferences[0].Name).To(gomega.Equal("follow"))
	g.Expect(s.Status.ValidUntil.Time).To(gomega.BeTemporally("~", time.Now().Add(30*time.Second), 5*time.Second))

	prom.set("free", map[string]string{"follow-1": "9", "follow-2": "10"})
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "follow-1", "follow")).To(gomega.Equal(scores{"free": 90, "total": 90}))
	})
	createCluster(t, "follow-3", map[string]string{"fleet": "follow"})
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "follow-3", "follow")).To(gomega.Equal(scores{"free": -100, "total": -100}))
		fresh, message := condition(g, "follow", v1alpha1.ConditionDataFresh)
		g.Expect(fresh).To(gomega.Equal("False/Missing"))
		g.Expect(message).To(gomega.Equal("1 of 3 clusters lack a fresh value: follow-3"))
	})
	left := &clusterv1.ManagedCluster{}
	g.Expect(api.Get(context.Background(), client.ObjectKey{Name: "follow-2"}, left)).To(gomega.Succeed())
	g.Expect(api.Delete(context.Background(), left)).To(gomega.Succeed())
	eventually(t, func(g gomega.Gomega) { g.Expect(values(g, "follow-2", "follow")).To(gomega.BeNil()) })
}

func TestUnchangedScoresAreNotWritten(t *testing.T) {
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"still-1": "3"})
	createCluster(t, "still-1", map[string]string{"fleet": "still"})
	create(t, source("still", prom.URL))
	create(t, policy("still"))
	startOperator(t)
	var first *clusterv1alpha1.AddOnPlacementScore
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "still-1", "still")).To(gomega.Equal(scores{"free": 30, "total": 30}))
		first = score(g, "still-1", "still")
	})
	rounds := lastRound(t, "still")
	eventually(t, func(g gomega.Gomega) {
		g.Expect(lastRound(t, "still").Sub(rounds)).To(gomega.BeNumerically(">=", 3*time.Second))
	})
	g := gomega.NewWithT(t)
	g.Expect(score(g, "still-1", "still").ResourceVersion).To(gomega.Equal(first.ResourceVersion))
}

func lastRound(t *testing.T, name string) time.Time {
	t.Helper()
	p := &v1alpha1.ScoringPolicy{}
	if err := api.Get(context.Background(), client.ObjectKey{Name: name}, p); err != nil {
		t.Fatal(err)
	}
	if p.Status.LastRound == nil {
		return time.Time{}
	}
	return p.Status.LastRound.Time.Time
}

func TestSourceDownKeepsScoresAndRecoversWithoutRestart(t *testing.T) {
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"down-1": "3"})
	createCluster(t, "down-1", map[string]string{"fleet": "down"})
	prom.setDown(true)
	create(t, source("down", prom.URL))
	p := policy("down")
	keepLast := int32(6)
	p.Spec.Scores[0].Missing.KeepLastSeconds = &keepLast
	create(t, p)
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		fresh, message := condition(g, "down", v1alpha1.ConditionDataFresh)
		g.Expect(fresh).To(gomega.Equal("False/Unavailable"))
		g.Expect(message).To(gomega.ContainSubstring("scores[free].query failed"))
	})
	g := gomega.NewWithT(t)
	g.Expect(values(g, "down-1", "down")).To(gomega.BeNil(), "no value is known yet, so no score may be published")
	prom.setDown(false)
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "down-1", "down")).To(gomega.Equal(scores{"free": 30, "total": 30}))
	})
	prom.setDown(true)
	eventually(t, func(g gomega.Gomega) {
		s := score(g, "down-1", "down")
		c := meta.FindStatusCondition(s.Status.Conditions, "DataFresh")
		g.Expect(c.Reason).To(gomega.Equal("Kept"))
		g.Expect(values(g, "down-1", "down")).To(gomega.Equal(scores{"free": 30, "total": 30}))
		g.Expect(s.Status.ValidUntil.Time).To(gomega.BeTemporally(">", time.Now()), "a keep time must not expire the scores")
	})
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "down-1", "down")).To(gomega.Equal(scores{"free": -100, "total": -100}))
	})
	prom.setDown(false)
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "down-1", "down")).To(gomega.Equal(scores{"free": 30, "total": 30}))
		ready, _ := condition(g, "down", v1alpha1.ConditionReady)
		g.Expect(ready).To(gomega.Equal("True/Ready"))
	})
	eventually(t, func(g gomega.Gomega) {
		g.Expect(eventReasons(g, "ScoringPolicy", "down")).To(gomega.ContainElements("Unavailable", "Fresh"))
	})
}

func TestInvalidQueryDoesNotAffectOtherScores(t *testing.T) {
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"bad-1": "3"})
	createCluster(t, "bad-1", map[string]string{"fleet": "bad"})
	create(t, source("bad", prom.URL))
	p := policy("bad")
	p.Spec.Scores = append(p.Spec.Scores, linear("broken", "sum by (cluster) (free"))
	create(t, p)
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		valid, message := condition(g, "bad", v1alpha1.ConditionQueriesValid)
		g.Expect(valid).To(gomega.Equal("False/ParseError"))
		g.Expect(message).To(gomega.Equal("scores[broken].query 1:23: unclosed left parenthesis"))
		g.Expect(values(g, "bad-1", "bad")).To(gomega.HaveKeyWithValue("free", int32(30)))
		g.Expect(values(g, "bad-1", "bad")).NotTo(gomega.HaveKey("total"))
	})
	g := gomega.NewWithT(t)
	g.Expect(api.Get(context.Background(), client.ObjectKeyFromObject(p), p)).To(gomega.Succeed())
	repaired := p.DeepCopy()
	repaired.Spec.Scores[1].Query = "free"
	g.Expect(api.Patch(context.Background(), repaired, client.MergeFrom(p))).To(gomega.Succeed())
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "bad-1", "bad")).To(gomega.Equal(scores{"free": 30, "broken": 30, "total": 30}))
	})
}

func TestScoresOfOtherOwnersAreNotWritten(t *testing.T) {
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"taken-1": "3", "taken-2": "4"})
	createCluster(t, "taken-1", map[string]string{"fleet": "taken"})
	createCluster(t, "taken-2", map[string]string{"fleet": "taken"})
	foreign := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: "taken-1", Name: "taken"}}
	create(t, foreign)
	create(t, source("taken", prom.URL))
	create(t, policy("taken"))
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		out, message := condition(g, "taken", v1alpha1.ConditionPublished)
		g.Expect(out).To(gomega.Equal("False/NameTaken"))
		g.Expect(message).To(gomega.ContainSubstring("taken-1"))
		g.Expect(values(g, "taken-2", "taken")).To(gomega.Equal(scores{"free": 40, "total": 40}))
	})
	g := gomega.NewWithT(t)
	g.Expect(score(g, "taken-1", "taken").ResourceVersion).To(gomega.Equal(foreign.ResourceVersion))
}

func TestShadowModeDeletesScores(t *testing.T) {
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"shadow-1": "3"})
	createCluster(t, "shadow-1", map[string]string{"fleet": "shadow"})
	create(t, source("shadow", prom.URL))
	p := policy("shadow")
	create(t, p)
	startOperator(t)
	eventually(t, func(g gomega.Gomega) { g.Expect(values(g, "shadow-1", "shadow")).To(gomega.HaveLen(2)) })
	g := gomega.NewWithT(t)
	g.Expect(api.Get(context.Background(), client.ObjectKeyFromObject(p), p)).To(gomega.Succeed())
	shadow := p.DeepCopy()
	shadow.Spec.Mode = v1alpha1.ModeShadow
	g.Expect(api.Patch(context.Background(), shadow, client.MergeFrom(p))).To(gomega.Succeed())
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "shadow-1", "shadow")).To(gomega.BeNil())
		ready, _ := condition(g, "shadow", v1alpha1.ConditionReady)
		g.Expect(ready).To(gomega.Equal("True/Shadow"))
		g.Expect(eventReasons(g, "ScoringPolicy", "shadow")).To(gomega.ContainElement("ScoresDeleted"))
	})
}

func TestRestartKeepsPublishedScores(t *testing.T) {
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"again-1": "3"})
	createCluster(t, "again-1", map[string]string{"fleet": "again"})
	create(t, source("again", prom.URL))
	create(t, policy("again"))
	// Times of objects have seconds. A score of the second in which the cluster was created may be
	// about its predecessor and is not restored.
	eventually(t, func(g gomega.Gomega) {
		cluster := &clusterv1.ManagedCluster{}
		g.Expect(api.Get(context.Background(), client.ObjectKey{Name: "again-1"}, cluster)).To(gomega.Succeed())
		g.Expect(time.Now().Unix()).To(gomega.BeNumerically(">", cluster.CreationTimestamp.Unix()))
	})
	stop := startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "again-1", "again")).To(gomega.Equal(scores{"free": 30, "total": 30}))
	})
	stop()
	prom.setDown(true)
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		c := meta.FindStatusCondition(score(g, "again-1", "again").Status.Conditions, "DataFresh")
		g.Expect(c.Reason).To(gomega.Equal("Kept"))
	})
	g := gomega.NewWithT(t)
	g.Expect(values(g, "again-1", "again")).To(gomega.Equal(scores{"free": 30, "total": 30}))
}

func TestDeletedPolicyDeletesItsScores(t *testing.T) {
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"bye-1": "3"})
	createCluster(t, "bye-1", map[string]string{"fleet": "bye"})
	create(t, source("bye", prom.URL))
	p := policy("bye")
	create(t, p)
	startOperator(t)
	eventually(t, func(g gomega.Gomega) { g.Expect(values(g, "bye-1", "bye")).To(gomega.HaveLen(2)) })
	g := gomega.NewWithT(t)
	g.Expect(api.Delete(context.Background(), p)).To(gomega.Succeed())
	eventually(t, func(g gomega.Gomega) { g.Expect(values(g, "bye-1", "bye")).To(gomega.BeNil()) })
}

func TestRecreatedPolicyAdoptsItsScores(t *testing.T) {
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"recreated-1": "3"})
	createCluster(t, "recreated-1", map[string]string{"fleet": "recreated"})
	create(t, source("recreated", prom.URL))
	p := policy("recreated")
	create(t, p)
	stop := startOperator(t)
	eventually(t, func(g gomega.Gomega) { g.Expect(values(g, "recreated-1", "recreated")).To(gomega.HaveLen(2)) })
	stop()
	g := gomega.NewWithT(t)
	g.Expect(api.Delete(context.Background(), p)).To(gomega.Succeed())
	p = policy("recreated")
	create(t, p)
	prom.set("free", map[string]string{"recreated-1": "4"})
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "recreated-1", "recreated")).To(gomega.Equal(scores{"free": 40, "total": 40}))
		owners := score(g, "recreated-1", "recreated").OwnerReferences
		g.Expect(owners).To(gomega.HaveLen(1))
		g.Expect(owners[0].UID).To(gomega.Equal(p.UID))
	})
}

func TestSourceWaitsForItsSecret(t *testing.T) {
	prom := newPrometheus(t)
	s := source("secretive", prom.URL)
	s.Spec.Auth = &v1alpha1.Auth{Authorization: &v1alpha1.Authorization{
		Credentials: &v1alpha1.SecretKeyReference{Name: "token", Key: "token"},
	}}
	create(t, s)
	startOperator(t)
	reachable := func(g gomega.Gomega) (string, string) {
		g.Expect(api.Get(context.Background(), client.ObjectKeyFromObject(s), s)).To(gomega.Succeed())
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReachable)
		if c == nil {
			return "", ""
		}
		return string(c.Status) + "/" + c.Reason, c.Message
	}
	elsewhere := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "token"}, StringData: map[string]string{"token": "x"}}
	create(t, elsewhere)
	eventually(t, func(g gomega.Gomega) {
		status, message := reachable(g)
		g.Expect(status).To(gomega.Equal("False/InvalidConfiguration"))
		g.Expect(message).To(gomega.Equal(`Secret plimsoll-system/token does not exist: create it with the key "token" and the label plimsoll.dev/source: "true"`))
	})
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "token"}, StringData: map[string]string{"token": "x"}}
	create(t, token)
	patch := func(change func()) {
		t.Helper()
		before := token.DeepCopy()
		change()
		if err := api.Patch(context.Background(), token, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func(g gomega.Gomega) {
		_, message := reachable(g)
		g.Expect(message).To(gomega.Equal(`Secret plimsoll-system/token can't be used: it has no label plimsoll.dev/source: "true", which permits its use by MetricsSources`))
	})
	patch(func() {
		token.Labels = map[string]string{v1alpha1.SourceSecretLabel: "true"}
		token.Annotations = map[string]string{v1alpha1.SourceHostsAnnotation: "prometheus.example.org"}
	})
	eventually(t, func(g gomega.Gomega) {
		_, message := reachable(g)
		g.Expect(message).To(gomega.Equal("Secret plimsoll-system/token can't be used: its annotation plimsoll.dev/source-hosts does not contain the host 127.0.0.1"))
	})
	patch(func() { token.Annotations[v1alpha1.SourceHostsAnnotation] = "prometheus.example.org, 127.0.0.1" })
	eventually(t, func(g gomega.Gomega) {
		status, _ := reachable(g)
		g.Expect(status).To(gomega.Equal("True/QuerySucceeded"))
	})
}

func TestPolicyRecoversFromAMissingSource(t *testing.T) {
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"late-1": "3"})
	createCluster(t, "late-1", map[string]string{"fleet": "late"})
	create(t, policy("late"))
	startOperator(t)
	eventually(t, func(g gomega.Gomega) {
		fresh, message := condition(g, "late", v1alpha1.ConditionDataFresh)
		g.Expect(fresh).To(gomega.Equal("False/NotFound"))
		g.Expect(message).To(gomega.Equal(`MetricsSource "late": not found`))
	})
	create(t, source("late", prom.URL))
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "late-1", "late")).To(gomega.Equal(scores{"free": 30, "total": 30}))
	})
}

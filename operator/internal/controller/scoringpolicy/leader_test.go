//go:build integration

package scoringpolicy_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// sentQuery is a query of a policy.
type sentQuery struct {
	from string // Authorization header, which names the operator
	at   time.Time
}

// recordingPrometheus records the queries, and can block a response.
type recordingPrometheus struct {
	*fakePrometheus
	mu      sync.Mutex
	sent    []sentQuery
	blocked chan struct{} // closed once the response to block is requested; nil if none is to be blocked
}

func (w *recordingPrometheus) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.FormValue("query") == "free" {
		w.mu.Lock()
		w.sent = append(w.sent, sentQuery{r.Header.Get("Authorization"), time.Now()})
		blocked := w.blocked
		w.blocked = nil
		w.mu.Unlock()
		if blocked != nil {
			close(blocked)
			<-r.Context().Done()
			return
		}
	}
	w.fakePrometheus.ServeHTTP(rw, r)
}

func (w *recordingPrometheus) queries() []sentQuery {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sent)
}

// blockNext blocks the next response. The channel is closed once the query arrives.
func (w *recordingPrometheus) blockNext() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked = make(chan struct{})
	return w.blocked
}

// TestLeaderKilledMidRound runs two operators like a Deployment does, and kills the leader
// while a query is running. The score must neither flap nor expire.
func TestLeaderKilledMidRound(t *testing.T) {
	const name, period = "leaders", 25 * time.Second
	w := &recordingPrometheus{fakePrometheus: newPrometheus(t)}
	w.Config.Handler = w
	w.set("free", map[string]string{"leaders-1": "3"})
	s := source(name, w.URL)
	s.Spec.Auth = &v1alpha1.Auth{Authorization: &v1alpha1.Authorization{Type: "As", CredentialsFile: "me"}}
	createCluster(t, "leaders-1", map[string]string{"fleet": name})
	create(t, s)
	p := policy(name)
	p.Spec.PeriodSeconds, p.Spec.ValidForPeriods = int32(period/time.Second), 3
	create(t, p)
	seen := watchScores(t, "leaders-1")

	binary := filepath.Join(t.TempDir(), "plimsoll-operator")
	if out, err := exec.Command("go", "build", "-o", binary, "plimsoll.dev/plimsoll/operator/cmd/plimsoll-operator").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	stop := map[string]func(){}
	run := func(who string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "me"), []byte(who), 0o600); err != nil {
			t.Fatal(err)
		}
		stop["As "+who] = start(t, binary, []string{"--kubeconfig=" + kubeconfigFile(t), "--namespace=" + operatorNamespace,
			"--metrics-bind-address=0", "--health-probe-bind-address=0", "--credentials-dir=" + dir, "--allow-loopback-sources"})
	}
	run("first")
	run("second")
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "leaders-1", name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
	})
	leader := w.queries()[0].from
	queried := w.blockNext()
	g := gomega.NewWithT(t)
	g.Eventually(queried).WithTimeout(2 * period).Should(gomega.BeClosed())
	stop[leader]()
	before := w.queries()
	killed := before[len(before)-1]
	for _, q := range before {
		g.Expect(q.from).To(gomega.Equal(leader), "only the leader sends queries")
	}
	g.Eventually(w.queries).WithTimeout(2 * period).WithPolling(50 * time.Millisecond).Should(gomega.HaveLen(len(before) + 1))
	next := w.queries()[len(before)]
	g.Expect(next.from).NotTo(gomega.Equal(leader))
	g.Expect(next.at.Sub(killed.at)).To(gomega.BeNumerically("<", period), "the next round is on time")
	w.set("free", map[string]string{"leaders-1": "4"})
	g.Eventually(func(g gomega.Gomega) {
		g.Expect(values(g, "leaders-1", name)).To(gomega.HaveKeyWithValue("free", int32(40)))
	}).
		WithTimeout(2 * period).Should(gomega.Succeed())
	for _, q := range w.queries()[len(before):] {
		g.Expect(q.from).To(gomega.Equal(next.from))
	}
	// The watch may deliver a write later than a read shows it.
	g.Eventually(func() bool {
		return slices.ContainsFunc(seen(), func(write writtenScore) bool { return write.free == 40 })
	}).WithTimeout(period).Should(gomega.BeTrue(), "the watch shows the new score")
	moved := false
	for _, write := range seen() {
		moved = moved || write.free == 40
		g.Expect(write.free).To(gomega.Equal(map[bool]int32{false: 30, true: 40}[moved]), "the score does not flap")
		g.Expect(write.condition).To(gomega.Equal("Fresh"))
		g.Expect(write.remaining).To(gomega.BeNumerically(">", 0), "the score never expires")
	}
}

// writtenScore is one state of a score.
type writtenScore struct {
	free      int32
	condition string
	// remaining validity of the previous state at the time of the write
	remaining time.Duration
}

// watchScores records all states of the scores of a cluster.
func watchScores(t *testing.T, cluster string) (seen func() []writtenScore) {
	t.Helper()
	c, err := client.NewWithWatch(hub, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(context.Background(), &clusterv1alpha1.AddOnPlacementScoreList{}, client.InNamespace(cluster))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	var (
		mu   sync.Mutex
		list []writtenScore
	)
	go func() {
		until := time.Now().Add(time.Hour)
		for e := range w.ResultChan() {
			s, ok := e.Object.(*clusterv1alpha1.AddOnPlacementScore)
			if !ok || e.Type == watch.Deleted || s.Status.ValidUntil == nil {
				continue
			}
			mu.Lock()
			state := writtenScore{remaining: time.Until(until), condition: s.Status.Conditions[0].Reason}
			for _, item := range s.Status.Scores {
				if item.Name == "free" {
					state.free = item.Value
				}
			}
			list = append(list, state)
			until = s.Status.ValidUntil.Time
			mu.Unlock()
		}
	}()
	return func() []writtenScore {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

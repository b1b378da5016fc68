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

// question is one of a policy, and which operator asked it.
type question struct {
	from string
	at   time.Time
}

// witness is a Prometheus that notes who asks, and can keep an answer back.
type witness struct {
	*prometheus
	mu    sync.Mutex
	asked []question
	keep  chan struct{} // closed when an answer is kept back; nil: none is
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.FormValue("query") == "free" {
		w.mu.Lock()
		w.asked = append(w.asked, question{r.Header.Get("Authorization"), time.Now()})
		keep := w.keep
		w.keep = nil
		w.mu.Unlock()
		if keep != nil {
			close(keep)
			<-r.Context().Done()
			return
		}
	}
	w.prometheus.ServeHTTP(rw, r)
}

func (w *witness) questions() []question {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

// keepBack keeps the next answer back; the channel is closed once it is asked for.
func (w *witness) keepBack() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keep = make(chan struct{})
	return w.keep
}

// TestLeaderKilledMidRound runs two operators as a Deployment would, kills the
// leader while it waits for an answer, and watches the score all the time.
func TestLeaderKilledMidRound(t *testing.T) {
	const name, period = "leaders", 25 * time.Second
	w := &witness{prometheus: newPrometheus(t)}
	w.Config.Handler = w
	w.set("free", map[string]string{"leaders-1": "3"})
	s := source(name, w.URL)
	s.Spec.Auth = &v1alpha1.Auth{Authorization: &v1alpha1.Authorization{Type: "As", CredentialsFile: "me"}}
	cluster(t, "leaders-1", map[string]string{"fleet": name})
	create(t, s)
	p := policy(name)
	p.Spec.PeriodSeconds, p.Spec.ValidForPeriods = int32(period/time.Second), 3
	create(t, p)
	seen := follow(t, "leaders-1")

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
			"--metrics-bind-address=0", "--health-probe-bind-address=0", "--credentials-dir=" + dir})
	}
	run("first")
	run("second")
	eventually(t, func(g gomega.Gomega) {
		g.Expect(values(g, "leaders-1", name)).To(gomega.Equal(scores{"free": 30, "total": 30}))
	})
	leader := w.questions()[0].from
	asked := w.keepBack()
	g := gomega.NewWithT(t)
	g.Eventually(asked).WithTimeout(2 * period).Should(gomega.BeClosed())
	stop[leader]()
	before := w.questions()
	killed := before[len(before)-1]
	for _, q := range before {
		g.Expect(q.from).To(gomega.Equal(leader), "only the leader asks")
	}
	g.Eventually(w.questions).WithTimeout(2 * period).WithPolling(50 * time.Millisecond).Should(gomega.HaveLen(len(before) + 1))
	next := w.questions()[len(before)]
	g.Expect(next.from).NotTo(gomega.Equal(leader))
	g.Expect(next.at.Sub(killed.at)).To(gomega.BeNumerically("<", period), "the next round is on time")
	w.set("free", map[string]string{"leaders-1": "4"})
	g.Eventually(func(g gomega.Gomega) {
		g.Expect(values(g, "leaders-1", name)).To(gomega.HaveKeyWithValue("free", int32(40)))
	}).
		WithTimeout(2 * period).Should(gomega.Succeed())
	for _, q := range w.questions()[len(before):] {
		g.Expect(q.from).To(gomega.Equal(next.from))
	}
	moved := false
	for _, write := range seen() {
		moved = moved || write.free == 40
		g.Expect(write.free).To(gomega.Equal(map[bool]int32{false: 30, true: 40}[moved]), "the score does not flap")
		g.Expect(write.condition).To(gomega.Equal("Fresh"))
		g.Expect(write.left).To(gomega.BeNumerically(">", 0), "it never expires")
	}
	g.Expect(moved).To(gomega.BeTrue())
}

// written is a state of a score: its value, its condition, and what was left of the
// validity of the state before it.
type written struct {
	free      int32
	condition string
	left      time.Duration
}

// follow watches the scores of a cluster.
func follow(t *testing.T, cluster string) (seen func() []written) {
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
		list []written
	)
	go func() {
		until := time.Now().Add(time.Hour)
		for e := range w.ResultChan() {
			s, ok := e.Object.(*clusterv1alpha1.AddOnPlacementScore)
			if !ok || e.Type == watch.Deleted || s.Status.ValidUntil == nil {
				continue
			}
			mu.Lock()
			state := written{left: time.Until(until), condition: s.Status.Conditions[0].Reason}
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
	return func() []written {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

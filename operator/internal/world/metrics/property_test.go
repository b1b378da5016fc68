package metrics_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/rebalance"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

var (
	seeds     = flag.Int("seeds", 4, "number of random histories of TestModesAgree")
	firstSeed = flag.Uint64("first-seed", 1, "first seed of TestModesAgree")
)

const (
	h100     = "NVIDIA-H100-80GB-HBM3"
	l40s     = "NVIDIA-L40S"
	v5e      = "tpu-v5-lite-podslice"
	gpu      = "nvidia.com/gpu"
	tpu      = "google.com/tpu"
	rulesDir = "../../../../rules"
)

var start = time.Unix(1_700_000_000, 0)

func loadRules(t testing.TB) *metrics.Rules {
	t.Helper()
	rules, err := metrics.LoadRules(rulesDir)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func newStore(t testing.TB, o metrics.Options) *metrics.Store {
	t.Helper()
	s, err := metrics.NewStore(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// recorded are the series that ClosedForm records.
var recorded = []string{
	"node:plimsoll_placeable:bool",
	"node:kube_allocatable:placeable",
	"node:plimsoll_topology:info",
	"node:kube_unrequested:placeable",
	"node:plimsoll_sample_timestamp_seconds:trusted",
	"node_resource_model:plimsoll_free_devices:placeable",
	"node_resource_model:plimsoll_devices:placeable",
	"cluster_resource_model:plimsoll_devices:sum",
	"cluster_resource_model:plimsoll_allocated_devices:sum",
	"cluster_resource_model:plimsoll_unhealthy_devices:sum",
	"cluster_resource_model:plimsoll_usable_devices:sum",
	"cluster_resource_model:plimsoll_free_devices:sum",
	"cluster_resource_model:plimsoll_node_free_devices:max",
	"cluster_resource_model_size:plimsoll_fits:sum",
	"cluster_resource:plimsoll_devices:sum",
	"cluster_resource:plimsoll_allocated_devices:sum",
	"cluster_resource:plimsoll_free_devices:sum",
	"cluster_resource:plimsoll_usable_devices:sum",
	"cluster:plimsoll_sample_timestamp_seconds:min",
	"cluster_queue:kueue_unreserved_quota:max",
	"cluster_queue:kueue_quota_limit:max",
	"cluster_queue:kueue_nominal_unreserved_quota:max",
	"cluster:kueue_sample_timestamp_seconds:min",
	"device:plimsoll_utilization:ratio",
	"device:plimsoll_allocation:info",
	"owner_model:plimsoll_utilization:avg",
	"device:plimsoll_idle_since_timestamp_seconds:min",
	"cluster:plimsoll_device_sample_timestamp_seconds:min",
}

var variable = regexp.MustCompile(`\$[a-z_]+`)

// operatorQueries are those of a ReclaimPolicy without a spec, and all queries of a gate without a spec and with every prerequisite, for two kinds of
// workloads, and those about holders.
func operatorQueries() []string {
	spec := &v1alpha1.PlacementGateSpec{Prerequisites: []v1alpha1.GatePrerequisite{
		{Kind: v1alpha1.PrerequisiteNamespace}, {Kind: v1alpha1.PrerequisiteLocalQueue}, {Kind: v1alpha1.PrerequisiteSecret},
	}}
	found := map[string]bool{}
	for _, values := range []map[string]string{
		{"$resource": gpu, "$model": h100, "$devices_per_pod": "2", "$cpu_per_pod": "1.2", "$memory_per_pod": "123456789", "$cluster_queue": "q0", "$flavor": "h100", "$namespace": "team-a"},
		{"$resource": tpu, "$model": v5e, "$devices_per_pod": "4", "$cpu_per_pod": "0", "$memory_per_pod": "0", "$cluster_queue": "q1", "$flavor": "other", "$namespace": "team-b"},
	} {
		for _, q := range gate.Queries(spec, "cluster") {
			found[variable.ReplaceAllStringFunc(q.Expr, func(name string) string { return values[name] })] = true
		}
	}
	found[gate.HolderQuery("cluster", []ledger.Owner{{Name: "job-1"}, {Name: "job-2"}})] = true
	found[gate.HolderQuery("cluster", make([]ledger.Owner, 200))] = true
	found[gate.OwnersReportedQuery("cluster")] = true
	found[rebalance.FreeQuery("cluster")], found[rebalance.UnrequestedQuery("cluster")], found[rebalance.AllocatedQuery("cluster")] = true, true, true
	reclaims := &v1alpha1.ReclaimPolicySpec{}
	for _, expr := range []string{reclaim.IdleQueryOf(reclaims), reclaim.FreshnessOf(reclaims).Query} {
		found[strings.ReplaceAll(expr, "$cluster_label", "cluster")] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// history is a random sequence of events.
type history struct {
	*rand.Rand
	now      time.Time
	clusters []*randomCluster
	pods     int
}

type randomCluster struct {
	snap     metrics.Snapshot
	added    int
	noKueue  bool
	quietFor int // scrapes that do not happen
}

func newHistory(seed uint64) *history {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 7)), now: start}
	for i := range 1 + h.IntN(3) {
		c := &randomCluster{snap: metrics.Snapshot{Cluster: fmt.Sprintf("c%d", i+1)}}
		for range h.IntN(4) {
			h.addNode(c)
		}
		h.setQueues(c)
		h.clusters = append(h.clusters, c)
	}
	return h
}

func (h *history) oneIn(n int) bool { return h.IntN(n) == 0 }

func pick[T any](h *history, of ...T) T { return of[h.IntN(len(of))] }

func (h *history) addNode(c *randomCluster) {
	c.added++
	n := metrics.Node{
		Name: fmt.Sprintf("n%d", c.added), Ready: true, CPU: int64(1000 * (1 + h.IntN(64))), Memory: int64(1024 * (1 + h.IntN(512))),
		Resource: pick(h, gpu, gpu, gpu, tpu, "nvidia.com/mig-1g.10gb", "amd.com/gpu", "example.com/fpga", ""), Labels: map[string]string{"topology.kubernetes.io/zone": "a"},
	}
	if n.Resource != "" {
		n.Devices = int64(pick(h, 1, 4, 8, 8, 8))
		n.Model = map[string]string{tpu: v5e}[n.Resource]
		n.Model = cmp.Or(n.Model, pick(h, h100, h100, l40s))
	}
	if h.oneIn(2) {
		n.Labels["cloud.google.com/gce-topology-block"] = pick(h, "a", "b")
	}
	c.snap.Nodes = append(c.snap.Nodes, n)
}

func (h *history) setQueues(c *randomCluster) {
	c.snap.Queues, c.snap.Cohorts = nil, nil
	for i := range h.IntN(4) {
		q := metrics.Queue{Name: fmt.Sprintf("q%d", i), Cohort: pick(h, "", "a", "a", "b"), BorrowingLimit: int64(pick(h, 0, 0, -1, 4))}
		for _, f := range []string{"h100", "l40s"}[:1+h.IntN(2)] {
			q.Flavor, q.Resource = f, pick(h, gpu, gpu, gpu, gpu, gpu, tpu, tpu, "cpu", "memory")
			q.Nominal, q.Reserved = int64(h.IntN(17)), int64(pick(h, 0, h.IntN(20)))
			c.snap.Queues = append(c.snap.Queues, q)
		}
	}
	if h.oneIn(3) {
		c.snap.Cohorts = append(c.snap.Cohorts, metrics.Cohort{Name: "b", Parent: pick(h, "", "root"), Flavor: "h100", Resource: gpu, Nominal: int64(h.IntN(8))})
	}
	c.snap.Objects = []metrics.Object{
		{Kind: metrics.KindNamespace, Name: pick(h, "team-a", "team-b")}, {Kind: metrics.KindLocalQueue, Namespace: pick(h, "team-a", "team-b"), Name: "lq", ClusterQueue: pick(h, "q0", "q1")},
		{Kind: metrics.KindSecret, Namespace: pick(h, "team-a", "team-b"), Name: "key"},
	}
}

// change changes something in a cluster.
func (h *history) change(c *randomCluster) {
	s := &c.snap
	var n *metrics.Node
	if len(s.Nodes) > 0 {
		n = &s.Nodes[h.IntN(len(s.Nodes))]
	}
	switch event := h.IntN(20); {
	case event == 0:
		h.addNode(c)
	case event == 1:
		h.setQueues(c)
	case event == 2:
		s.Nodes = slices.DeleteFunc(s.Nodes, func(metrics.Node) bool { return h.oneIn(4) })
	case event == 3:
		c.noKueue = !c.noKueue
	case event == 4:
		c.quietFor = pick(h, 1, 5, 25)
	case event == 5 && h.oneIn(3):
		s.Nodes = nil
	case event == 6 || event == 7:
		for i := range s.Queues {
			s.Queues[i].Reserved = int64(pick(h, 0, h.IntN(20)))
		}
	case n == nil:
	case event == 8:
		n.Ready = !n.Ready
	case event == 9:
		n.Cordoned = !n.Cordoned
	case event == 10:
		n.Taint = pick(h, "", "", gpu, "maintenance")
	case event == 11:
		n.Silent = !n.Silent
	case event == 12:
		n.KubeletDown = !n.KubeletDown
	case event == 13:
		n.Unhealthy = int64(h.IntN(int(n.Devices) + 1))
	case event == 14:
		n.CollectedAt = pick(h, time.Time{}, time.Time{}, h.now, h.now.Add(-59*time.Second), h.now.Add(-time.Hour), h.now.Add(70*time.Second), h.now.Add(-25*time.Hour), h.now.Add(30*time.Second-24*time.Hour))
	case event == 15:
		n.OwnersUnreachable, n.NoOwners = h.oneIn(3), h.oneIn(3)
	case event == 16 && n.Resource != "":
		n.Devices = int64(pick(h, 0, 8, 8))
	case event == 18:
		n.Claimed = int64(pick(h, 0, 1, 8, 1_000_000))
	case event == 17:
		n.CPUUsed, n.MemoryUsed = int64(h.IntN(4000)), int64(h.IntN(4096))
	}
	h.changePods(s)
}

func (h *history) changePods(s *metrics.Snapshot) {
	s.Pods = slices.DeleteFunc(s.Pods, func(p metrics.Pod) bool {
		return h.oneIn(5) || p.Node != "" && !slices.ContainsFunc(s.Nodes, func(n metrics.Node) bool { return n.Name == p.Node })
	})
	for range h.IntN(3) {
		h.pods++
		p := metrics.Pod{Namespace: pick(h, "team-a", "team-b"), Name: fmt.Sprintf("p%d", h.pods), CPU: int64(h.IntN(900)), Memory: int64(h.IntN(900)),
			OwnerKind: pick(h, "Job", "Job", ""), Phase: pick(h, "", "", "Running", "Pending", "Succeeded"), Utilization: pick(h, 0, h.Float64())}
		if p.OwnerKind != "" {
			p.OwnerName = fmt.Sprintf("job-%d", h.IntN(4))
		}
		if len(s.Nodes) > 0 && !h.oneIn(5) {
			n := &s.Nodes[h.IntN(len(s.Nodes))]
			p.Node, p.Resource, p.Model = n.Name, n.Resource, n.Model
			if p.Resource != "" {
				p.Devices = int64(h.IntN(4))
			}
		}
		s.Pods = append(s.Pods, p)
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Allocated = 0
		for _, p := range s.Pods {
			if p.Node == n.Name && p.Phase != "Succeeded" {
				n.Allocated += p.Devices
			}
		}
	}
}

// scrape changes a cluster and scrapes it into the stores.
func (h *history) scrape(t *testing.T, c *randomCluster, stores ...*metrics.Store) {
	for range h.IntN(4) {
		h.change(c)
	}
	if c.quietFor > 0 {
		c.quietFor--
		return
	}
	snap := c.snap
	snap.CollectedAt = pick(h, time.Time{}, time.Time{}, h.now.Add(-4*time.Second))
	if c.noKueue {
		snap.Queues, snap.Cohorts = nil, nil
	}
	parts := []metrics.Part{metrics.All, metrics.Exporters, metrics.KubeState, metrics.Kueue, metrics.NodeExporter("n1")}
	if h.oneIn(6) {
		snap.Failed = append(snap.Failed, parts[h.IntN(len(parts))])
	}
	later := metrics.Part("")
	if h.oneIn(12) {
		later = parts[h.IntN(len(parts))]
	}
	for _, s := range stores {
		if err := s.Scrape(h.now, snap); err != nil {
			t.Fatal(err)
		}
		if later == "" {
			continue
		}
		if err := s.ScrapeFailed(h.now.Add(time.Millisecond), c.snap.Cluster, later); err != nil {
			t.Fatal(err)
		}
	}
}

// compareModes runs one history. It adds the number of series of each query to results.
func compareModes(t *testing.T, seed uint64, rules *metrics.Rules, queries []string, results map[string]int) {
	h := newHistory(seed)
	closed := newStore(t, metrics.Options{Devices: true, Topology: true})
	ruled := newStore(t, metrics.Options{Mode: metrics.RulesEngine, Rules: rules})
	reusing := newStore(t, metrics.Options{Mode: metrics.RulesEngine, Rules: rules})
	metrics.EvaluateAlways(ruled)
	stores := []*metrics.Store{closed, ruled, reusing}
	for range 30 {
		for _, c := range h.clusters {
			h.now = h.now.Add(time.Duration(1+h.IntN(8000)) * time.Millisecond)
			h.scrape(t, c, stores...)
		}
		// The rules may be evaluated for the very time of the last scrape, of which the failure is a
		// millisecond later.
		h.now = h.now.Add(pick(h, 0, 0, time.Millisecond, 3*time.Second))
		if !h.oneIn(15) {
			for _, s := range stores {
				if err := s.Evaluate(h.now); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 2 {
			at := h.now.Add(time.Duration(h.IntN(15_000)) * time.Millisecond)
			if h.oneIn(10) {
				at = h.now.Add(pick(h, -20*time.Second, 290*time.Second, 5*time.Minute, 299*time.Second))
			}
			for _, expr := range queries {
				results[expr] += compareResults(t, expr, at, ruled, closed)
				compareResults(t, expr, at, ruled, reusing)
			}
		}
		h.now = h.now.Add(pick(h, 10*time.Second, 10*time.Second, 10*time.Second, 2*time.Minute, 295*time.Second, 301*time.Second))
		if t.Failed() {
			t.Fatalf("seed %d: -run 'TestModesAgree/%d$' -first-seed %d", seed, seed, seed)
		}
	}
}

// compareResults reports differences, and returns the number of series of the result.
func compareResults(t *testing.T, expr string, at time.Time, ruled, other *metrics.Store) int {
	t.Helper()
	want, got := seriesOf(t, ruled, expr, at), seriesOf(t, other, expr, at)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[key]; !ok {
			t.Errorf("%s at %s: the store has no %s, the rules %v", expr, at.Sub(start), key, want[key])
		} else if !same(v, want[key]) {
			t.Errorf("%s at %s: the store has %s = %v, the rules %v", expr, at.Sub(start), key, v, want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			t.Errorf("%s at %s: the store has %s = %v, the rules do not have it", expr, at.Sub(start), key, got[key])
		}
	}
	return len(want)
}

// same compares values. Sums of fractions depend on the order of their terms.
func same(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) || math.IsNaN(a) && math.IsNaN(b)
}

func seriesOf(t testing.TB, s *metrics.Store, expr string, at time.Time) map[string]float64 {
	t.Helper()
	result, err := s.Query(t.Context(), expr, at)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return byLabels(result)
}

func byLabels(result query.Result) map[string]float64 {
	found := map[string]float64{}
	for _, s := range result.Samples {
		var kv []string
		for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
			kv = append(kv, name+"="+s.Labels[name])
		}
		found[strings.Join(kv, ",")] = s.Value
	}
	return found
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

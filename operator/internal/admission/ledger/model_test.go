package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// model states, in the simplest way, which workloads have reservations where.
type model struct {
	current map[string]map[string]reservation
	ended   map[string]map[string]bool
}

// reservation is the state of an entry.
type reservation struct {
	isAdmitted bool
	decidedBy  string
}

func newModel() *model {
	return &model{map[string]map[string]reservation{}, map[string]map[string]bool{}}
}

func (m *model) debit(uid, cluster, decidedBy string) {
	if old, exists := m.current[uid][cluster]; exists && (old.decidedBy == "" || decidedBy != "") {
		return
	}
	if m.current[uid] == nil {
		m.current[uid] = map[string]reservation{}
	}
	m.current[uid][cluster] = reservation{decidedBy: decidedBy}
	delete(m.ended[uid], cluster)
}

// commit replaces the reservations of a workload, and those that it decides for component, but for
// those of the kept clusters.
func (m *model) commit(uid, component string, kept, clusters []string) {
	for other, reservations := range m.current {
		for c, r := range reservations {
			isReserved := slices.Contains(clusters, c) && (other == uid || other == component)
			if (other == uid || r.decidedBy == uid) && !isReserved && !slices.Contains(kept, c) {
				delete(reservations, c)
			}
		}
	}
	for _, c := range clusters {
		m.debit(uid, c, "")
		if component != "" {
			m.debit(component, c, uid)
		}
	}
}

func (m *model) admit(uid, cluster string) {
	if r, exists := m.current[uid][cluster]; exists && !r.isAdmitted {
		m.current[uid] = map[string]reservation{cluster: {isAdmitted: true}}
		m.dropDecidedBy(uid, cluster)
	}
}

// dropDecidedBy drops what rests on the decision of a workload, but for that on one cluster.
func (m *model) dropDecidedBy(uid, except string) {
	for _, reservations := range m.current {
		for c, r := range reservations {
			if r.decidedBy == uid && c != except {
				delete(reservations, c)
			}
		}
	}
}

func (m *model) end(uid string) {
	m.dropDecidedBy(uid, "")
	for c := range m.current[uid] {
		if m.ended[uid] == nil {
			m.ended[uid] = map[string]bool{}
		}
		m.ended[uid][c] = true
	}
	delete(m.current, uid)
}

func (m *model) release(uid string) {
	m.dropDecidedBy(uid, "")
	delete(m.current, uid)
}

func (m *model) devices() map[string]int64 {
	sum := map[string]int64{}
	for _, clusters := range m.current {
		for c := range clusters {
			sum[c] += 8
		}
	}
	for _, clusters := range m.ended {
		for c := range clusters {
			sum[c] += 8
		}
	}
	return sum
}

// In any sequence of calls the ledger has exactly the reservations that were made and not released.
// Those of a component that rest on the decision of another one end with that one's.
// A commit on an old view changes nothing. A gate never holds two clusters for the same devices. When
// all workloads have ended and samples show it, nothing is left.
func TestAnySequenceOfCalls(t *testing.T) {
	clusters := []string{"cluster1", "cluster2", "cluster3"}
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		l, m := New(time.Second, time.Hour), newModel()
		some := func() []string {
			return slices.DeleteFunc(slices.Clone(clusters), func(string) bool { return random.IntN(2) == 0 })
		}
		view := l.View()
		for range 60 {
			uid, cluster := fmt.Sprint("w", random.IntN(5)), clusters[random.IntN(3)]
			switch random.IntN(9) {
			case 0:
				view = l.View()
			case 1, 2, 3:
				if random.IntN(2) == 0 {
					view = l.View()
				}
				kept, to, component := some(), some(), ""
				if other := fmt.Sprint("w", random.IntN(5)); other != uid && random.IntN(2) == 0 {
					component = other
				}
				var entries []Entry
				for _, c := range to {
					entries = append(entries, entry(uid, c))
					if component != "" {
						decided := entry(component, c)
						decided.DecidedBy = uid
						entries = append(entries, decided)
					}
				}
				before := l.View()
				isCurrent := before.generation == view.generation
				if l.Commit(view, uid, kept, entries, randomHold(random, uid, cluster)) != isCurrent {
					t.Fatalf("seed %d: a commit on a current view: %t", seed, isCurrent)
				}
				if isCurrent {
					m.commit(uid, component, kept, to)
				} else if after := l.View(); after.generation != before.generation {
					t.Fatalf("seed %d: a commit on an old view changed the ledger", seed)
				}
			case 4:
				l.Debit(entry(uid, cluster))
				m.debit(uid, cluster, "")
			case 5:
				l.MarkAdmitted(uid, cluster, t0, random.IntN(2) == 0)
				m.admit(uid, cluster)
			case 6:
				l.MarkEnded(uid, t0)
				m.end(uid)
			case 7:
				l.Release(uid)
				m.release(uid)
			case 8:
				l.MarkPodsReady(uid, t0)
				l.MarkHeld(Holders{cluster: {{Name: uid}: 1}}, after(60))
				l.Credit(Credit{Cluster: cluster, PodSets: []shape.PodSet{podSet(8, 1)}, FinishedAt: t0})
				l.PutRunning(Running{UID: uid, Cluster: cluster, PodSets: []shape.PodSet{podSet(8, 1)}})
				l.Expire(nil, t0)
			}
			if diff := cmp.Diff(m.devices(), l.DevicesByCluster()); diff != "" {
				t.Fatalf("seed %d: reserved devices (-want +got):\n%s", seed, diff)
			}
			requireView(t, l.View(), clusters)
			requireWhole(t, l)
		}
		for i := range 5 {
			l.MarkEnded(fmt.Sprint("w", i), t0)
		}
		l.Expire(map[string]SampleTimes{"cluster1": {Devices: after(60)}, "cluster2": {Devices: after(60)}, "cluster3": {Devices: after(60)}}, after(60))
		rest := l.View()
		if len(l.entries) > 0 || l.followers != 0 {
			t.Fatalf("seed %d: the ledger keeps %v, %d followers", seed, l.entries, l.followers)
		}
		if len(rest.byCluster)+len(rest.credits)+len(rest.running)+len(rest.holds) > 0 {
			t.Fatalf("seed %d: the ledger still has %+v", seed, rest)
		}
	}
}

// randomHold is a hold of one of two gates for one of two models, or nil.
func randomHold(random *rand.Rand, uid, cluster string) *Hold {
	if random.IntN(3) > 0 {
		return nil
	}
	p := podSet(8, 1)
	p.Model = []string{h100, "NVIDIA-A100", ""}[random.IntN(3)]
	return &Hold{Gate: []string{"gpu", "batch"}[random.IntN(2)], UID: uid, Workload: uid, Cluster: cluster,
		PodSets: []shape.PodSet{p}, Rank: Rank{Priority: int32(random.IntN(3))}}
}

// requireWhole checks that the view has each entry and credit of the ledger, and no other: it shares what has not
// changed with earlier views.
func requireWhole(t *testing.T, l *Ledger) {
	t.Helper()
	v := l.View()
	entries, credits := 0, 0
	for e := range l.all() {
		entries++
		if !slices.Contains(v.byCluster[e.Cluster], e) {
			t.Fatalf("the view lacks %+v", e)
		}
	}
	for _, list := range v.byCluster {
		entries -= len(list)
	}
	for _, list := range v.credits {
		credits += len(list)
	}
	if entries != 0 || credits != len(l.credits) {
		t.Fatalf("the view has %d entries too many, and %d of %d credits", -entries, credits, len(l.credits))
	}
}

// requireView checks that no number is negative, that no workload counts against itself, and that
// holds are unique.
func requireView(t *testing.T, v View, clusters []string) {
	t.Helper()
	for _, c := range clusters {
		all := v.Devices(c, time.Time{}, "", podSet(1, 1))
		if slots := v.Slots(c, time.Time{}, "", podSet(8, 1), 0); slots < 0 || slots*8 != all {
			t.Fatalf("%d devices are %d slots of eight", all, slots)
		}
		own := map[string]int64{}
		for _, e := range v.Entries(c, time.Time{}) {
			own[e.UID] += e.Devices()
		}
		for uid, n := range maps.All(own) {
			if others := v.Devices(c, time.Time{}, uid, podSet(1, 1)); others != all-n {
				t.Fatalf("%d of %d devices count against %s, which has %d", others, all, uid, n)
			}
		}
	}
	for i, a := range v.Holds() {
		for _, b := range v.Holds()[i+1:] {
			if a.UID == b.UID || a.Gate == b.Gate && ShareDevices(a.PodSets, b.PodSets) {
				t.Fatalf("two holds: %+v and %+v", a, b)
			}
		}
	}
}

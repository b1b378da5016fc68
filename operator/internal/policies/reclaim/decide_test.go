package reclaim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// enforce are the defaults of the API in mode Enforce.
var enforce = Bounds{Mode: v1alpha1.ModeEnforce, Idle: 30 * time.Minute, MinRun: 30 * time.Minute, MaxPerHour: 4}

// idleJob is a workload with two devices on cluster1 that ran for three hours, idle for the last one.
func idleJob(name string, change ...func(*Candidate)) *Candidate {
	c := &Candidate{Namespace: "team-a", Name: name, UID: "uid-" + name, Queue: "research", Group: "queue research", OthersWait: true,
		Owner: Owner{Cluster: "cluster1", Namespace: "team-a", Kind: "Job", Name: name}, Resource: "nvidia.com/gpu", Devices: 2,
		RunningSince: noon.Add(-3 * time.Hour), Idle: []time.Duration{time.Hour, 70 * time.Minute}}
	for _, f := range change {
		f(c)
	}
	return c
}

func idleTimes(minutes ...int) func(*Candidate) {
	return func(c *Candidate) {
		c.Idle = nil
		for _, m := range minutes {
			c.Idle = append(c.Idle, time.Duration(m)*time.Minute)
		}
	}
}

func inGroup(group string) func(*Candidate) { return func(c *Candidate) { c.Group = group } }
func inNamespace(namespace string) func(*Candidate) {
	return func(c *Candidate) { c.Namespace = namespace }
}
func runsSince(ago time.Duration) func(*Candidate) {
	return func(c *Candidate) { c.RunningSince = noon.Add(-ago) }
}
func protected(c *Candidate) { c.Protection = "it is a slice of an elastic job" }
func alone(c *Candidate)     { c.OthersWait = false }
func priority(p int32) func(*Candidate) {
	return func(c *Candidate) { c.Priority = p }
}

// recorded are records of workloads, some minutes ago.
func recorded(mode v1alpha1.Mode, minutesAgo ...int) []v1alpha1.ReclaimRecord {
	var history []v1alpha1.ReclaimRecord
	for i, m := range minutesAgo {
		history = append(history, v1alpha1.ReclaimRecord{Time: metav1.NewTime(noon.Add(-time.Duration(m) * time.Minute)), Mode: mode, UID: fmt.Sprint("old", i)})
	}
	return history
}

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name       string
		bounds     func(*Bounds)
		candidates []*Candidate
		history    []v1alpha1.ReclaimRecord
		want       []string
	}{
		{name: "idle", candidates: []*Candidate{idleJob("a")}, want: []string{"a Selected"}},
		{name: "no samples", candidates: []*Candidate{idleJob("a", idleTimes())}},
		{name: "one device is busy", candidates: []*Candidate{idleJob("a", idleTimes(60))}},
		{name: "one device has become idle just now", candidates: []*Candidate{idleJob("a", idleTimes(60, 0))}},
		{name: "one device is idle for too short", candidates: []*Candidate{idleJob("a", idleTimes(60, 29))}},
		{name: "exactly long enough", candidates: []*Candidate{idleJob("a", idleTimes(60, 30))}, want: []string{"a Selected"}},
		{name: "a device of an earlier attempt does not count", candidates: []*Candidate{idleJob("a", idleTimes(60, 190))}},
		{name: "the clocks differ a little", candidates: []*Candidate{idleJob("a", idleTimes(181, 181))}, want: []string{"a Selected"}},
		{name: "unknown number of devices", candidates: []*Candidate{idleJob("a", func(c *Candidate) { c.Devices = 0 })}},
		{name: "no devices", candidates: []*Candidate{idleJob("a", idleTimes(), func(c *Candidate) { c.Devices = 0 })}},
		{name: "within minRunSeconds", candidates: []*Candidate{idleJob("a", runsSince(40*time.Minute), idleTimes(40, 40))},
			bounds: func(b *Bounds) { b.MinRun = time.Hour }, want: []string{"a Starting: it has run for 40m0s of minRunSeconds"}},
		{name: "after minRunSeconds", candidates: []*Candidate{idleJob("a", runsSince(time.Hour), idleTimes(40, 40))},
			bounds: func(b *Bounds) { b.MinRun = time.Hour }, want: []string{"a Selected"}},
		{name: "protected", candidates: []*Candidate{idleJob("a", protected)}, want: []string{"a Protected: it is a slice of an elastic job"}},
		{name: "no other workload waits", candidates: []*Candidate{idleJob("a", alone)}, want: []string{"a NotNeeded: no workload of at least its priority waits for its devices"}},
		{name: "more idle devices than it holds", candidates: []*Candidate{idleJob("a", idleTimes(60, 60, 60))}},
		{name: "another one still returns", candidates: []*Candidate{idleJob("a", func(c *Candidate) { c.Returning = "team-a/z" })},
			want: []string{"a Limited: the return of team-a/z is not complete"}},
		{name: "one per group and round", candidates: []*Candidate{idleJob("a"), idleJob("b"), idleJob("c", inGroup("cohort x"))},
			want: []string{"a Selected", "b Limited: team-a/a comes first", "c Selected"}},
		{name: "the lowest priority first", candidates: []*Candidate{idleJob("a", priority(10)), idleJob("b", priority(-1)), idleJob("c")},
			want: []string{"b Selected", "c Limited: team-a/b comes first", "a Limited: team-a/b comes first"}},
		{name: "then the most device-seconds", candidates: []*Candidate{idleJob("a"), idleJob("b", idleTimes(90, 90))},
			want: []string{"b Selected", "a Limited: team-a/b comes first"}},
		{name: "then the namespace and the name", candidates: []*Candidate{idleJob("a", inNamespace("team-b")), idleJob("c"), idleJob("b")},
			want: []string{"b Selected", "c Limited: team-a/b comes first", "a Limited: team-a/b comes first"}},
		{name: "a protected one does not block others", candidates: []*Candidate{idleJob("a", protected), idleJob("b")},
			want: []string{"a Protected: it is a slice of an elastic job", "b Selected"}},
		{name: "maxPerHour", candidates: []*Candidate{idleJob("a")}, history: recorded(v1alpha1.ModeEnforce, 59, 40, 3, 1),
			want: []string{"a Limited: maxPerHour is reached: 4 within the last hour"}},
		{name: "one of them is older", candidates: []*Candidate{idleJob("a"), idleJob("b", inGroup("cohort x"))}, history: recorded(v1alpha1.ModeEnforce, 61, 40, 3, 1),
			want: []string{"a Selected", "b Limited: maxPerHour is reached: 4 within the last hour"}},
		{name: "records of the other mode do not count", candidates: []*Candidate{idleJob("a")}, history: recorded(v1alpha1.ModeShadow, 59, 40, 3, 1), want: []string{"a Selected"}},
		{name: "records from the future count", candidates: []*Candidate{idleJob("a")}, history: recorded(v1alpha1.ModeEnforce, -10, -10, -10, -10),
			want: []string{"a Limited: maxPerHour is reached: 4 within the last hour"}},
		{name: "mode Shadow records a run once", bounds: func(b *Bounds) { b.Mode = v1alpha1.ModeShadow }, candidates: []*Candidate{idleJob("a"), idleJob("b")},
			history: []v1alpha1.ReclaimRecord{{Time: metav1.NewTime(noon.Add(-5 * time.Hour)), Mode: v1alpha1.ModeShadow, UID: "uid-a", RunningSince: metav1.NewTime(noon.Add(-3 * time.Hour))}},
			want:    []string{"a Recorded: mode Shadow recorded it already", "b Selected"}},
		{name: "mode Shadow records the next run", bounds: func(b *Bounds) { b.Mode = v1alpha1.ModeShadow }, candidates: []*Candidate{idleJob("a")},
			history: []v1alpha1.ReclaimRecord{{Time: metav1.NewTime(noon.Add(-5 * time.Hour)), Mode: v1alpha1.ModeShadow, UID: "uid-a", RunningSince: metav1.NewTime(noon.Add(-6 * time.Hour))}},
			want:    []string{"a Selected"}},
		{name: "mode Enforce reclaims a run that mode Shadow recorded", candidates: []*Candidate{idleJob("a")},
			history: []v1alpha1.ReclaimRecord{{Time: metav1.NewTime(noon.Add(-time.Minute)), Mode: v1alpha1.ModeShadow, UID: "uid-a", RunningSince: metav1.NewTime(noon.Add(-3 * time.Hour))}},
			want:    []string{"a Selected"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bounds := enforce
			if tc.bounds != nil {
				tc.bounds(&bounds)
			}
			var got []string
			for _, d := range Decide(bounds, tc.candidates, tc.history, noon) {
				text := d.Name + " " + string(d.State)
				if d.Reason != "" {
					text += ": " + d.Reason
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is observed, the bounds hold: over random rounds, with changes of the mode, and with the
// history as the only state.
func TestBoundsHold(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for run := range 50 {
		bounds := Bounds{Idle: time.Duration(1+random.IntN(60)) * time.Minute, MinRun: time.Duration(random.IntN(90)) * time.Minute, MaxPerHour: 1 + random.IntN(60)}
		var history []v1alpha1.ReclaimRecord
		var reclaimed []time.Time
		now := noon
		for round := range 200 {
			now = now.Add(time.Duration(10+random.IntN(120)) * time.Second)
			bounds.Mode = v1alpha1.ModeEnforce
			if random.IntN(4) == 0 {
				bounds.Mode = v1alpha1.ModeShadow
			}
			decisions := Decide(bounds, randomCandidates(random, now), history, now)
			history = Record(history, decisions, bounds.Mode, now)
			if len(history) > maxHistory {
				t.Fatalf("run %d, round %d: %d records", run, round, len(history))
			}
			groups := map[string]bool{}
			for _, d := range decisions {
				if d.State != v1alpha1.IdleSelected {
					continue
				}
				if problem := brokenBound(bounds, &d, groups, now); problem != "" {
					t.Fatalf("run %d, round %d: %s: %+v", run, round, problem, d.Candidate)
				}
				groups[d.Group] = true
				if bounds.Mode == v1alpha1.ModeEnforce {
					reclaimed = append(reclaimed, now)
				}
			}
			if n := bounds.MaxPerHour; len(reclaimed) > n && now.Sub(reclaimed[len(reclaimed)-1-n]) <= time.Hour {
				t.Fatalf("run %d, round %d: more than %d within an hour", run, round, n)
			}
		}
	}
}

// brokenBound returns the bound that a selected workload breaks. It computes each one in its own
// way.
func brokenBound(bounds Bounds, d *Decision, groups map[string]bool, now time.Time) string {
	idle := int64(0)
	for _, sample := range d.Idle {
		if sample >= bounds.Idle {
			idle++
		}
	}
	switch {
	case d.Protection != "":
		return "protected"
	case !d.OthersWait:
		return "no other workload waits"
	case d.Returning != "":
		return "another one returns"
	case idle < d.Devices:
		return "a device is busy or unknown"
	case d.RunningSince.Add(bounds.MinRun).After(now):
		return "below the minimum run time"
	case groups[d.Group]:
		return "two of a group"
	}
	return ""
}

func randomCandidates(random *rand.Rand, now time.Time) []*Candidate {
	var candidates []*Candidate
	for i := range random.IntN(12) {
		c := idleJob(fmt.Sprint("job", i), inGroup(fmt.Sprint("group", random.IntN(8))), priority(int32(random.IntN(3))))
		c.Devices = int64(1 + random.IntN(3))
		c.RunningSince = now.Add(-time.Duration(random.IntN(180)) * time.Minute)
		c.Idle = nil
		for range random.IntN(int(c.Devices) + 2) {
			c.Idle = append(c.Idle, time.Duration(random.IntN(150))*time.Minute)
		}
		if c.OthersWait = random.IntN(5) > 0; random.IntN(6) == 0 {
			protected(c)
		}
		if random.IntN(6) == 0 {
			c.Returning = "team-a/other"
		}
		candidates = append(candidates, c)
	}
	return candidates
}

func TestRecordKeepsWhatCounts(t *testing.T) {
	var history []v1alpha1.ReclaimRecord
	for i := range 60 {
		history = append(history, recorded(v1alpha1.ModeEnforce, 50-i/2)...)
	}
	for range 60 {
		decisions := []Decision{{Candidate: idleJob("a"), State: v1alpha1.IdleSelected}, {Candidate: idleJob("b"), State: v1alpha1.IdleLimited}}
		history = Record(history, decisions, v1alpha1.ModeShadow, noon)
	}
	if n := countRecent(history, v1alpha1.ModeEnforce, noon); n != 60 || len(history) != maxHistory {
		t.Errorf("%d records of the last hour in mode Enforce, %d in all", n, len(history))
	}
	if last := history[len(history)-1]; last.Name != "a" {
		t.Errorf("the last record is %+v", last)
	}
}

// The status of a policy shows its records.
func TestRecordAndCauseDescribeTheReclaim(t *testing.T) {
	want := v1alpha1.ReclaimRecord{Time: metav1.NewTime(noon), Mode: v1alpha1.ModeShadow, Namespace: "team-a", Name: "a", UID: "uid-a",
		RunningSince: metav1.NewTime(noon.Add(-3 * time.Hour)), Cluster: "cluster1", Devices: 2, IdleSeconds: 3600}
	decisions := Decide(Bounds{Mode: v1alpha1.ModeShadow, MaxPerHour: 1}, []*Candidate{idleJob("a")}, nil, noon)
	if diff := cmp.Diff([]v1alpha1.ReclaimRecord{want}, Record(nil, decisions, v1alpha1.ModeShadow, noon)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if got := decisions[0].Cause(); got != "its 2 devices on cluster1 have been idle for 1h0m0s" {
		t.Error(got)
	}
}

func TestRemoveTakesOnlyTheRecordsOfTheRound(t *testing.T) {
	decisions := []Decision{{Candidate: idleJob("a"), State: v1alpha1.IdleSelected}, {Candidate: idleJob("b"), State: v1alpha1.IdleSelected}}
	history := Record(nil, decisions, v1alpha1.ModeEnforce, noon.Add(-time.Minute))
	history = Record(history, decisions, v1alpha1.ModeEnforce, noon)
	got := Remove(history, []string{decisions[0].UID}, noon)
	if len(got) != 3 || got[2].Name != "b" {
		t.Errorf("got %+v", got)
	}
}

// Moves count for maxPerHour. A move that mode Shadow recorded is no record of an idle workload.
func TestMovesInTheHistory(t *testing.T) {
	moved := v1alpha1.ReclaimRecord{Time: metav1.NewTime(noon.Add(-time.Minute)), Mode: v1alpha1.ModeShadow, UID: "uid-a",
		RunningSince: metav1.NewTime(noon.Add(-3 * time.Hour)), Move: &v1alpha1.MoveRecord{ForUID: "big"}}
	bounds := Bounds{Mode: v1alpha1.ModeShadow, Idle: time.Minute, MaxPerHour: 2}
	if d := Decide(bounds, []*Candidate{idleJob("a")}, []v1alpha1.ReclaimRecord{moved}, noon); d[0].State != v1alpha1.IdleSelected {
		t.Errorf("a move counts as a record of an idle workload: %+v", d[0])
	}
	bounds.MaxPerHour = 1
	if d := Decide(bounds, []*Candidate{idleJob("a")}, []v1alpha1.ReclaimRecord{moved}, noon); d[0].State != v1alpha1.IdleLimited {
		t.Errorf("a move does not count for maxPerHour: %+v", d[0])
	}
	history := []v1alpha1.ReclaimRecord{moved}
	if !ReturnedRecently(history, v1alpha1.ModeShadow, "uid-a", noon) || ReturnedRecently(history, v1alpha1.ModeEnforce, "uid-a", noon) ||
		ReturnedRecently(history, v1alpha1.ModeShadow, "uid-b", noon) || ReturnedRecently(history, v1alpha1.ModeShadow, "uid-a", noon.Add(time.Hour)) {
		t.Error("the wrong workloads returned recently")
	}
}

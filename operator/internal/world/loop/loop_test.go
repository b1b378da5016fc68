//go:build !race

// The event loop starts no goroutines, so that the race detector has nothing to find in these tests.

package loop

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/world"
)

// smallWorld has more jobs than devices, so that some wait.
func smallWorld(faults ...world.Fault) world.Spec {
	s := world.Spec{Seed: 1, Clusters: []world.Cluster{{Name: "cluster1", Pools: []world.Pool{{Nodes: 2, Devices: 8}}}, {Name: "cluster2", Pools: []world.Pool{{Nodes: 1, Devices: 8}}}}, Faults: faults}
	for i := range 20 {
		s.Jobs = append(s.Jobs, world.Job{Name: fmt.Sprint("j", i), At: time.Minute + time.Duration(i)*5*time.Second, Devices: []int64{1, 2, 4, 8}[i%4], Duration: 2 * time.Minute})
	}
	return s
}

// TestRun runs worlds to their end: all jobs finish, and the operator forgets them.
func TestRun(t *testing.T) {
	for _, tc := range []struct {
		name   string
		faults []world.Fault
	}{
		{"no fault", nil},
		{"the operator is killed and starts again", []world.Fault{{Kind: world.OperatorDown, At: 90 * time.Second, Lasts: 20 * time.Second}, {Kind: world.OperatorDown, At: 130 * time.Second, Lasts: time.Second}}},
		{"writes fail", []world.Fault{{Kind: world.WritesFail, At: 70 * time.Second, Lasts: time.Minute, Amount: 300}}},
		{"a worker is not reachable", []world.Fault{{Kind: world.Unreachable, Cluster: "cluster1", At: 80 * time.Second, Lasts: 5 * time.Minute}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log []string
			w := Run(smallWorld(tc.faults...), Options{Verbose: func(line string) { log = append(log, line) }})
			for _, p := range w.Problems {
				t.Error(p)
			}
			for _, r := range w.Runs() {
				if r.Done.IsZero() {
					t.Errorf("%s has not ended", r.Name)
				}
			}
			if t.Failed() {
				t.Log(strings.Join(log, "\n"))
			}
		})
	}
}

// A new process knows what the one before it has sent, which no sample shows yet: it sends no job to a full cluster.
func TestRestartKeepsReservations(t *testing.T) {
	s := world.Spec{Seed: 1, Clusters: []world.Cluster{{Name: "cluster1", Pools: []world.Pool{{Nodes: 2, Devices: 8}}}, {Name: "cluster2", Pools: []world.Pool{{Nodes: 1, Devices: 8}}}}}
	s.Queues = []world.Queue{{Name: "gpu", Nominal: map[string]int64{"NVIDIA-H100-80GB-HBM3": 256}}}
	for i, at := range []time.Duration{60000, 60000, 60000, 60700, 60700, 60700} { // three are sent before the restart
		s.Jobs = append(s.Jobs, world.Job{Name: fmt.Sprint("j", i), At: at * time.Millisecond, Devices: 8, Duration: 5 * time.Minute})
	}
	s.Faults = []world.Fault{{Kind: world.OperatorDown, At: 61 * time.Second, Lasts: 100 * time.Millisecond}}
	nominated := regexp.MustCompile(`(\d+)\.\d+s (j\d) is nominated to \[c`)
	sent := map[string]bool{}
	Run(s, Options{Verbose: func(line string) {
		if m := nominated.FindStringSubmatch(line); m != nil && len(m[1]) < 3 { // in the first 100 s
			sent[m[2]] = true
		}
	}})
	if got := slices.Sorted(maps.Keys(sent)); !slices.Equal(got, []string{"j0", "j1", "j2"}) {
		t.Errorf("sent %v to 3 nodes", got)
	}
}

// TestParkedJobsAreDecidedTogether has jobs that no node could hold. Once they are parked, the first of them is decided for
// all: twenty times as many cost as many decisions.
func TestParkedJobsAreDecidedTogether(t *testing.T) {
	decisions := map[int]int{}
	for _, jobs := range []int{20, 400} {
		s := world.Spec{Seed: 1, Clusters: []world.Cluster{{Name: "cluster1", Pools: []world.Pool{{Nodes: 1, Devices: 8}}}}, Settings: world.Settings{Length: 2 * time.Hour},
			Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{"NVIDIA-H100-80GB-HBM3": int64(9*jobs + 8)}}},
			Jobs:   []world.Job{{Name: "runs", At: time.Minute, Devices: 8, Duration: time.Hour}}}
		s.Settings.Gate.WhenUnplaceable.Never.AfterSeconds = 60
		for i := range jobs {
			s.Jobs = append(s.Jobs, world.Job{Name: fmt.Sprint("j", i), At: time.Minute, Devices: 9, Duration: time.Minute})
		}
		w := Run(s, Options{Decide: func(in *gate.Inputs, now time.Time) gate.Decision {
			if now.Sub(start) > 30*time.Minute {
				decisions[jobs]++
			}
			return in.Decide(now)
		}})
		if w.Elapsed() < time.Hour {
			t.Fatalf("the world ended after %s", w.Elapsed())
		}
	}
	t.Logf("decisions in half an hour by number of parked jobs: %v", decisions)
	if few := decisions[20]; few == 0 || decisions[400] > 2*few {
		t.Errorf("decisions in half an hour by number of parked jobs: %v, want as many", decisions)
	}
}

// TestRunRepeats shows that a world takes the same course each time.
func TestRunRepeats(t *testing.T) {
	var logs [2][]string
	for i := range logs {
		Run(smallWorld(world.Fault{Kind: world.OperatorDown, At: 90 * time.Second, Lasts: 5 * time.Second}), Options{Verbose: func(line string) { logs[i] = append(logs[i], line) }})
	}
	if !slices.Equal(logs[0], logs[1]) {
		for k := range min(len(logs[0]), len(logs[1])) {
			if logs[0][k] != logs[1][k] {
				t.Fatalf("line %d: %s\n%s", k, logs[0][k], logs[1][k])
			}
		}
		t.Fatalf("%d and %d lines", len(logs[0]), len(logs[1]))
	}
}

//go:build !race

package driver

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/loop"
)

var (
	seeds   = flag.Int("seeds", 5, "number of random worlds")
	first   = flag.Uint64("first", 1, "seed of the first random world")
	verbose = flag.Bool("log", false, "print what happens in the worlds")
	shrink  = flag.Int("shrink", 0, "number of runs in which a failing world may be made smaller")
	logs    = flag.String("logs", "", "folder for the logs of failing worlds")
	workers = flag.Int("workers", 1, "workloads that the operator reconciles at a time; a world repeats exactly with 1")
	each    = flag.Bool("each", false, "print a line for each world")
	inLoop  = flag.Bool("loop", false, "run what package loop has of each world there, which takes less than a tenth of the time")
)

// knownFailures are the invariants that the gate is known to break, and why. A world that breaks only
// these is counted and does not fail. TestKnownFailures fails when one of them holds.
var knownFailures = map[world.Invariant]string{
	world.NoVainKill: "Kueue on the hub preempts before the gate decides",
}

// TestRandomWorlds runs random worlds to their end. None may break an invariant.
func TestRandomWorlds(t *testing.T) {
	stats := statistics{known: map[world.Invariant]int{}}
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		spec := world.Random(seed)
		if *inLoop {
			spec = loopSpec(seed, isLoopFault)
		}
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) { runRandom(t, spec, &stats) })
		if !ok && *shrink > 0 {
			report(t, spec)
		}
	}
	t.Log(stats.String())
}

func runRandom(t *testing.T, spec world.Spec, stats *statistics) {
	t.Helper()
	o := Options{Workers: *workers}
	if *verbose {
		o.Verbose = func(line string) { fmt.Println(line) }
	}
	began := time.Now()
	w := runChosen(t, spec, o)
	stats.add(w, time.Since(began))
	if *each {
		fmt.Printf("seed %d: %s of CPU, %d jobs, %d faults, %s\n", spec.Seed, time.Since(began).Round(time.Millisecond), len(spec.Jobs), len(spec.Faults), w.Elapsed().Round(time.Second))
	}
	unknown := unknownProblems(w)
	if len(unknown) == 0 {
		return
	}
	for _, p := range unknown {
		t.Errorf("%s", p)
	}
	t.Errorf("to repeat: make world SEEDS=1 FIRST=%d%s", spec.Seed, map[bool]string{true: " LOOP=1"}[*inLoop])
	if *logs != "" {
		if err := os.WriteFile(filepath.Join(*logs, fmt.Sprintf("world-%d.log", spec.Seed)), []byte(w.Log()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// runChosen runs a world with the whole operator, or in the loop.
func runChosen(t *testing.T, spec world.Spec, o Options) *world.World {
	if *inLoop {
		return loop.Run(spec, loop.Options{Verbose: o.Verbose})
	}
	return Run(t, spec, o)
}

func unknownProblems(w *world.World) []world.Problem {
	return slices.DeleteFunc(slices.Clone(w.Problems), func(p world.Problem) bool { return knownFailures[p.Invariant] != "" })
}

// report prints the smallest world that still fails.
func report(t *testing.T, spec world.Spec) {
	var invariant world.Invariant
	small := world.Shrink(spec, *shrink, func(s world.Spec) bool {
		w := runChosen(t, s, Options{})
		unknown := unknownProblems(w)
		if invariant == "" && len(unknown) > 0 {
			invariant = unknown[0].Invariant
		}
		return slices.ContainsFunc(unknown, func(p world.Problem) bool { return p.Invariant == invariant })
	})
	t.Logf("the smallest world that fails:\n%s", world.Describe(small))
}

// statistics are the sums over worlds.
type statistics struct {
	worlds, jobs, faults int
	known                map[world.Invariant]int
	virtual, cpu         time.Duration
}

func (s *statistics) add(w *world.World, cpu time.Duration) {
	s.worlds++
	s.jobs += len(w.Runs())
	s.faults += len(w.Spec.Faults)
	s.virtual += w.Elapsed()
	s.cpu += cpu
	for _, p := range w.Problems {
		if knownFailures[p.Invariant] != "" {
			s.known[p.Invariant]++
		}
	}
}

func (s *statistics) String() string {
	text := fmt.Sprintf("%d worlds, %d jobs, %d faults, %.0f virtual hours in %.0f s", s.worlds, s.jobs, s.faults, s.virtual.Hours(), s.cpu.Seconds())
	for _, i := range slices.Sorted(maps.Keys(knownFailures)) {
		text += fmt.Sprintf("; known failure %s: %d", i, s.known[i])
	}
	return text
}

// TestWorldsRepeat shows that a seed takes the same course each time.
func TestWorldsRepeat(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var logs [2][]string
			for i := range logs {
				logs[i] = strings.Split(Run(t, world.Random(seed), Options{}).Log(), "\n")
			}
			for i := range min(len(logs[0]), len(logs[1])) {
				if logs[0][i] != logs[1][i] {
					t.Fatalf("line %d differs:\n%s\n%s", i, logs[0][i], logs[1][i])
				}
			}
			if len(logs[0]) != len(logs[1]) {
				t.Fatalf("%d lines and %d lines", len(logs[0]), len(logs[1]))
			}
		})
	}
}

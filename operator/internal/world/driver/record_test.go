//go:build !race

package driver

import (
	"flag"
	"path/filepath"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/test/story"
)

var recordFile = flag.String("record", filepath.Join("testdata", "soak.json"), "record of a soak that TestRecord repeats")

// alikeAtLeast is the share of the decisions in testdata/soak.json that the operator makes in the world,
// too, in percent. operator/docs/world.md explains the others.
const alikeAtLeast = 74

// TestRecord repeats a soak of the lab in the world. The operator sends most jobs to the same clusters.
func TestRecord(t *testing.T) {
	record, err := story.ReadRecord(*recordFile)
	if err != nil {
		t.Fatal(err)
	}
	var replay *world.Replay
	Run(t, soakWorld(record), Options{Verbose: printLog(), Steps: func(d *Driver) {
		d.Advance(time.Minute, nil) // the gate and its members come up
		replay = d.Replay(record)
		d.Advance(replay.Length(), nil)
	}})
	count, early, byChance := map[string]int{}, 0, 0
	for _, c := range replay.Choices {
		kind := kindOf(c)
		count[kind]++
		if c.Early > time.Second {
			early++
		}
		if c.ByChance {
			byChance++
		}
		if kind != alike {
			t.Logf("%6.1f s %s, attempt %d: to %s, in the world to %q, %.1f s later: %s; %s", c.At.Seconds(), c.Job, c.Attempt, c.Want, c.Got, c.Late.Seconds(), kind, c.Why)
		}
	}
	percent := 100 * float64(count[alike]) / float64(len(replay.Choices))
	t.Logf("%.1f %% of %d decisions are alike: %v; with another seed of the draw %d would be; %d would come more than 1 s earlier", percent, len(replay.Choices), count, byChance, early)
	if percent < alikeAtLeast {
		t.Errorf("want %d %%", alikeAtLeast)
	}
}

const alike = "same cluster"

// kindOf is how a decision in the world differs from that of the record.
func kindOf(c *world.Choice) string {
	switch {
	case c.Got == c.Want:
		return alike
	case c.Got == "":
		return "not decided by then"
	}
	return "other cluster"
}

// soakWorld is the fleet of the lab with the queue, the periods and the policy of its soak.
func soakWorld(record *story.Record) world.Spec {
	s := labWorld()
	s.Queues = []world.Queue{{Name: "soak", Nominal: map[string]int64{h100: record.Quota}, WithinQueue: "LowerPriority"}}
	for i := range s.Clusters {
		s.Clusters[i].Quotas = map[string]map[string]int64{"soak": {h100: 256}}
	}
	s.Settings = world.Settings{ScrapeInterval: 2 * time.Second, WatchDelay: 4 * time.Millisecond, QueryTime: 2 * time.Millisecond, Gate: v1alpha1.PlacementGateSpec{
		Policies:      []v1alpha1.GatePolicy{{Policy: "fleet", Score: "score", Use: v1alpha1.UsePrefer}},
		PeriodSeconds: 2,
		Freshness:     v1alpha1.GateFreshness{MaxSampleAgeSeconds: 20, UnknownAfterSeconds: 40},
		Advanced:      v1alpha1.AdvancedGate{WidenAfterSeconds: 20},
		Hold:          v1alpha1.GateHold{AfterSeconds: 20},
	}}
	return s
}

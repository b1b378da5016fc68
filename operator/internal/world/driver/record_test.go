//go:build !race

package driver

import (
	"encoding/json"
	"flag"
	"path/filepath"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/test/story"
)

var recordFile = flag.String("record", filepath.Join("testdata", "soak.json.gz"), "record of a soak that TestRecord repeats")

// alikeAtLeast is the share of the decisions in testdata/soak.json.gz that the operator makes in the world,
// too, in percent. operator/docs/world.md explains the others.
const alikeAtLeast = 95

// TestRecord repeats a soak of the lab in the world. The operator sends the jobs to the same clusters.
func TestRecord(t *testing.T) {
	record, err := story.ReadRecord(*recordFile)
	if err != nil {
		t.Fatal(err)
	}
	var replay *world.Replay
	Run(t, soakWorld(t, record), Options{Verbose: printLog(), Record: record, Steps: func(d *Driver) {
		d.Advance(time.Minute, nil) // the gate and its members come up
		replay = d.Replay
		replay.Begin()
		d.Advance(replay.Length(), nil)
	}})
	alike, sameRoom, several := 0, 0, 0
	for _, c := range replay.Choices {
		if c.Got == c.Want {
			alike++
		}
		if c.SameRoom {
			sameRoom++
		}
		if c.Eligible > 1 {
			several++
		}
		if c.Why != "" || c.Got != c.Want {
			t.Logf("%7.2f s %s, attempt %d: to %s, in the world to %q: %s", c.At.Seconds(), c.Job, c.Attempt, c.Want, c.Got, c.Why)
		}
	}
	percent := 100 * float64(alike) / float64(len(replay.Choices))
	t.Logf("%.1f %% of %d decisions that send a job are alike, %d of them by the same room, %d had several clusters with room; of %d other decisions, %d would send a job, and %d hold another cluster",
		percent, len(replay.Choices), sameRoom, several, replay.Waits, replay.Early, replay.OtherHolds)
	if percent < alikeAtLeast {
		t.Errorf("want %d %%", alikeAtLeast)
	}
}

// soakWorld is the fleet of the lab with the queue and the gate of its soak.
func soakWorld(t *testing.T, record *story.Record) world.Spec {
	t.Helper()
	s := labWorld()
	s.Queues = []world.Queue{{Name: "soak", Nominal: map[string]int64{h100: record.Quota}, WithinQueue: "LowerPriority"}}
	for i := range s.Clusters {
		s.Clusters[i].Quotas = map[string]map[string]int64{"soak": {h100: 256}}
	}
	s.Settings = world.Settings{WatchDelay: 4 * time.Millisecond, QueryTime: 2 * time.Millisecond}
	if err := json.Unmarshal(record.Gate, &s.Settings.Gate); err != nil {
		t.Fatal(err)
	}
	return s
}

// Package driver runs the operator in a world: all its controllers in a real manager, against the
// world's API server and metrics store, in the virtual time of testing/synctest.
package driver

import (
	"testing"
	"testing/synctest"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/operator"
	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
	"plimsoll.dev/plimsoll/test/story"
)

// Options of a run.
type Options struct {
	// Rules are the shipped recording rules, for a Spec that evaluates them.
	Rules *metrics.Rules
	// Workers of the controller of workloads; default 1, with which a world repeats exactly.
	Workers int
	// Verbose receives each line of the world's log.
	Verbose func(string)
	// Record of a soak that Driver.Replay repeats; nil = none.
	Record *story.Record
	// Steps runs on the started world instead of waiting for all jobs to end; nil = wait.
	Steps func(*Driver)
}

// Driver advances a world.
type Driver struct {
	*world.World
	process *process
	// Replay of Options.Record.
	Replay *world.Replay
}

// drainTime is for how long the operator may remember workloads that were deleted.
const drainTime = 20 * time.Minute

// Run runs a world to its end and returns it. It must not run in another bubble of synctest.
func Run(t *testing.T, spec world.Spec, o Options) *world.World {
	t.Helper()
	var result *world.World
	synctest.Test(t, func(t *testing.T) { result = run(t, spec, o) })
	return result
}

func run(t *testing.T, spec world.Spec, o Options) *world.World {
	scheme, err := operator.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	w, err := world.New(spec, scheme, o.Rules, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	w.Verbose = o.Verbose
	p := newProcess(w, scheme, max(1, o.Workers))
	w.Operator = p
	d := &Driver{World: w, process: p}
	if o.Record != nil {
		d.Replay = w.NewReplay(o.Record)
		p.decide = d.Replay.Decide
	}
	p.Start()
	synctest.Wait()
	for i := range w.Spec.Settings.Standbys {
		w.Loop.After(time.Duration(i+1)*time.Second, p.Start)
	}
	if o.Steps != nil {
		o.Steps(d)
	} else {
		d.finish()
	}
	p.stopAll()
	synctest.Wait()
	w.Close()
	if p.err != nil {
		t.Error(p.err)
	}
	return w
}

// finish runs the world until all jobs are over, and then until the operator has forgotten them.
func (d *Driver) finish() {
	planned := d.Spec.LastPlanned()
	d.Advance(planned, nil)
	d.Advance(d.settings().Length, d.AllOver)
	d.Finish()
	d.DeleteAll()
	d.Advance(drainTime, nil)
	d.FinishDrained()
}

func (d *Driver) settings() *world.Settings { return &d.Spec.Settings }

// Advance runs the world for a time, or until a condition holds. It reports whether the condition held.
func (d *Driver) Advance(limit time.Duration, until func() bool) bool {
	end := d.Loop.Now().Add(limit)
	for {
		if until != nil && until() {
			return true
		}
		at, ok := d.Loop.Next()
		if !ok || at.After(end) {
			at = end
		}
		if wait := at.Sub(d.Loop.Now()); wait > 0 && !d.sleep(wait) {
			continue
		}
		ran := false
		for d.Loop.RunNext() {
			synctest.Wait()
			ran = true
		}
		if !ran && !d.Loop.Now().Before(end) {
			return false
		}
	}
}

// sleep waits until a time, and reports false if an earlier event was scheduled meanwhile.
func (d *Driver) sleep(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		synctest.Wait() // timers of the operator that are due at the same time come first
		return true
	case <-d.Loop.Wake():
		return false
	}
}

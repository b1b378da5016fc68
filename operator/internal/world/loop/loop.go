// Package loop runs the admission engine in a world without API server, controller manager, metrics store or
// goroutines: one event loop with a clock of its own. It is for worlds with many jobs. Package driver runs the whole
// operator in the same worlds.
package loop

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/world"
)

// start is the time at which worlds begin, as in testing/synctest.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// drainTime is for how long the operator may remember workloads that were deleted.
const drainTime = 20 * time.Minute

// Options of a run.
type Options struct {
	// Verbose receives each line of the world's log; nil = the world has no log.
	Verbose func(string)
	// Decide makes the decisions of the gate; nil = the product's.
	Decide gate.Decider
	// Steps runs on the started world instead of waiting for all jobs to end; nil = wait.
	Steps func(*Driver)
}

// Driver advances a world.
type Driver struct {
	*world.World
	operator *operator
	decide   gate.Decider
	now      time.Time
}

// Run runs a world to its end and returns it.
func Run(spec world.Spec, o Options) *world.World {
	d := &Driver{now: start, decide: o.Decide}
	d.World = world.NewPlain(spec, func() time.Time { return d.now })
	d.Verbose, d.Quiet = o.Verbose, o.Verbose == nil
	d.operator = &operator{driver: d}
	d.Operator = d.operator
	d.operator.Start()
	if o.Steps != nil {
		o.Steps(d)
	} else {
		d.finish()
	}
	d.Close()
	return d.World
}

// finish runs the world until all jobs are over, and then until the operator has forgotten them.
func (d *Driver) finish() {
	d.Advance(d.Spec.LastPlanned(), nil)
	d.Advance(d.Spec.Settings.Length, d.AllOver)
	d.Finish()
	d.DeleteAll()
	d.Advance(drainTime, nil)
	d.FinishDrained()
}

// Advance runs the world for a time, or until a condition holds. It reports whether the condition held.
func (d *Driver) Advance(limit time.Duration, until func() bool) bool {
	for end := d.now.Add(limit); ; {
		if until != nil && until() {
			return true
		}
		d.operator.work()
		if !d.runNext(end) {
			d.now = end
			return false
		}
	}
}

// sleep lets the world go on while the operator waits for a response.
func (d *Driver) sleep(wait time.Duration) {
	end := d.now.Add(wait)
	for d.runNext(end) {
	}
	d.now = end
}

// runNext runs the next event, if its time comes before the end.
func (d *Driver) runNext(end time.Time) bool {
	at, ok := d.Loop.Next()
	if !ok || at.After(end) {
		return false
	}
	if at.After(d.now) {
		d.now = at
	}
	return d.Loop.RunNext()
}

package loop

import (
	"strings"
	"time"
)

// operator is the operator in the world. Its process can be killed and started again.
type operator struct {
	driver *Driver
	// process that runs; nil = none.
	process *process
}

// work lets the process do what it has to do now.
func (o *operator) work() {
	if o.process != nil {
		o.process.work()
	}
}

// Start implements world.Operator.
func (o *operator) Start() {
	if o.process == nil {
		o.process = newProcess(o.driver)
	}
}

// Stop implements world.Operator.
func (o *operator) Stop() {
	if o.process != nil {
		o.process.stopped = true
		o.process = nil
	}
}

// CutOff implements world.Operator. A process without a standby keeps on leading.
func (*operator) CutOff(time.Duration) {}

// Running implements world.Operator.
func (o *operator) Running() bool { return o.process != nil }

// Holds implements world.Operator.
func (o *operator) Holds() map[string][]string {
	held := map[string][]string{}
	if o.process != nil {
		for _, h := range o.process.engine.Ledger.View().Holds() {
			held[h.Cluster] = append(held[h.Cluster], h.Workload)
		}
	}
	return held
}

// Doubted implements world.Operator.
func (o *operator) Doubted() map[string]bool {
	if o.process == nil {
		return nil
	}
	return o.process.engine.Ledger.View().Doubted(o.driver.now)
}

// Remaining implements world.Operator.
func (o *operator) Remaining() string {
	if o.process == nil {
		return "the operator does not run"
	}
	return strings.Join(o.process.engine.Remembered(), "; ")
}

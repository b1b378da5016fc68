package collector

import (
	"context"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// maxDeadlinesPerReading limits a reading whose calls each keep their deadline. The
// reading may take this many deadlines, and one more for each MIG instance of the device.
const maxDeadlinesPerReading = 5

// readResult is the result of one reading.
type readResult struct {
	reading  device.Reading
	err      error
	duration time.Duration
}

// read reads a device. Each library call must return within the deadline.
//
// A reading that exceeds the deadline keeps running, and the device is not read again
// before it returns. So a hung device occupies one goroutine. The late result is
// discarded, because its values are old, and the device is read again.
func (c *Collector) read(ctx context.Context, v *vendor, t *trackedDevice) {
	if t.pending != nil {
		select {
		case late := <-t.pending:
			t.expectedInstances = len(late.reading.Instances)
		default:
			return
		}
	}
	pending, progress := startReading(ctx, v, t.device)
	t.pending = pending
	result, ok := c.awaitReading(ctx, pending, progress, maxDeadlinesPerReading+t.expectedInstances)
	usage := c.usageByPod(result.reading.Processes)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return // the exporter stops; the device is not at fault
	}
	if !ok {
		t.recordHang()
		c.logFaults(t, nil)
		return
	}
	t.pending = nil
	t.recordReading(c.cfg.Now(), result, usage)
	c.logFaults(t, result.err)
}

// startReading starts a reading. progress receives a value after each library call.
func startReading(ctx context.Context, v *vendor, d device.Device) (done chan readResult, progress <-chan struct{}) {
	done, calls := make(chan readResult, 1), make(chan struct{}, 1)
	ctx = device.WithProgress(ctx, func() {
		select {
		case calls <- struct{}{}:
		default: // the receiver has not seen the last call yet
		}
	})
	go func() {
		start := time.Now()
		reading, err := v.Read(ctx, d)
		done <- readResult{reading, err, time.Since(start)}
	}()
	return done, calls
}

// awaitReading waits for a reading. ok is false if a call exceeds the deadline, if the
// reading exceeds maxDeadlines, or if ctx ends.
func (c *Collector) awaitReading(ctx context.Context, done <-chan readResult, progress <-chan struct{}, maxDeadlines int) (result readResult, ok bool) {
	call, reading := time.NewTimer(c.cfg.Deadline), time.NewTimer(time.Duration(maxDeadlines)*c.cfg.Deadline)
	defer call.Stop()
	defer reading.Stop()
	for {
		select {
		case result := <-done:
			return result, true
		case <-ctx.Done():
			return result, false
		case <-progress:
			call.Reset(c.cfg.Deadline)
		case <-call.C:
			return result, false
		case <-reading.C:
			return result, false
		}
	}
}

// readInstance reads a MIG instance. If its device is unhealthy, the instance is
// unhealthy too and is not read.
func (c *Collector) readInstance(ctx context.Context, v *vendor, t *trackedDevice) {
	if t.parent.isHealthy() {
		c.read(ctx, v, t)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.fresh, t.lost, t.failed = false, t.parent.lost, !t.parent.lost
	t.resetIdleTime()
}

package tpu

import "time"

// progressSample is a sample of the indicators of progress on a chip.
type progressSample struct {
	time       time.Time
	queueKnown bool // the runtime reports the queue size
	queued     bool // programs are queued
	// coreMark changes with the program counters of the cores. 0 means unknown.
	coreMark uint64
	idle     *float64 // seconds since the cores last computed; nil if unknown
	uptime   *float64 // uptime of the runtime in seconds; nil if unknown
}

// stallDetector measures how long a chip has made no progress.
type stallDetector struct {
	last         progressSample
	lastProgress time.Time
}

// observe adds a sample and returns for how many seconds programs have been queued without
// progress. It returns false if the sample has no indicator of progress.
func (d *stallDetector) observe(sample progressSample) (seconds float64, ok bool) {
	last := d.last
	d.last = sample
	if !sample.queueKnown {
		return 0, false
	}
	if !sample.queued || !last.queued {
		d.lastProgress = sample.time
		return 0, !sample.queued || sample.coreMark != 0 || sample.idle != nil
	}
	progressed, ok := sample.hasProgressed(last)
	if progressed || !ok {
		d.lastProgress = sample.time
	}
	return sample.time.Sub(d.lastProgress).Seconds(), ok
}

// hasProgressed compares two samples. It returns known = false if neither has an indicator of
// progress. The first applicable rule decides:
//
//  1. A restarted runtime has progressed.
//  2. A runtime whose uptime stands still has not.
//  3. Changed program counters mean progress.
//  4. Cores idle for less than the interval between the samples mean progress.
func (p progressSample) hasProgressed(last progressSample) (progressed, known bool) {
	elapsed := p.time.Sub(last.time).Seconds()
	hasUptime := p.uptime != nil && last.uptime != nil
	switch {
	case hasUptime && *p.uptime < *last.uptime:
		return true, true
	case hasUptime && *p.uptime == *last.uptime && elapsed > 2:
		return false, true
	case p.coreMark != 0:
		return p.coreMark != last.coreMark, true
	case p.idle != nil:
		return *p.idle < elapsed, true
	}
	return false, false
}

package collector

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// event is an occurrence of an XID, or of a bitmask of clock event reasons.
type event struct {
	at   time.Time
	code uint64
}

// eventHistory holds the events within a window, oldest first.
type eventHistory struct {
	window time.Duration
	events []event
}

// add appends an event and drops the events before the window. A device can report thousands
// of events in a collection, so the events within the window are not copied.
func (h *eventHistory) add(now time.Time, code uint64) {
	h.events = append(h.events[h.countOld(now):], event{now, code})
}

// recent returns a copy of the events within the window.
func (h *eventHistory) recent(now time.Time) []event {
	return slices.Clone(h.events[h.countOld(now):])
}

// countOld returns the number of events before the window.
func (h *eventHistory) countOld(now time.Time) (n int) {
	for n < len(h.events) && now.Sub(h.events[n].at) > h.window {
		n++
	}
	return n
}

// countedEvent is a metric of dcgm-exporter that counts the events within a window, by
// kind. If there was no event, the metric is 0 and lacks the label of the kind.
type countedEvent struct {
	dcgmField
	label  string // of the kind of event
	events func(*deviceSnapshot) (events []event, window time.Duration, ok bool)
	kinds  func(code uint64) []string
}

var countedEvents = []countedEvent{
	{
		dcgmField: dcgmField{name: "DCGM_EXP_XID_ERRORS_COUNT", kind: gauge, unit: "1", help: "XID events within the window, by code.", route: "event set"},
		label:     "xid",
		events: func(d *deviceSnapshot) ([]event, time.Duration, bool) {
			return d.recentXIDs, d.xidWindow, d.device.ReportsXIDs
		},
		kinds: func(code uint64) []string { return []string{strconv.FormatUint(code, 10)} },
	},
	{
		dcgmField: dcgmField{name: "DCGM_EXP_CLOCK_EVENTS_COUNT", kind: gauge, unit: "1", help: "Collections within the window that saw reduced clocks, by reason.", route: "nvmlDeviceGetCurrentClocksEventReasons"},
		label:     "clock_event",
		events: func(d *deviceSnapshot) ([]event, time.Duration, bool) {
			_, ok := d.reading.Get(device.ClockEvents)
			return d.recentClockEvents, d.clockEventsWindow, ok && d.fresh
		},
		kinds: clockEventReasons,
	},
}

// clockEventNames are dcgm-exporter's names of NVML's clock event reasons, by bit.
var clockEventNames = []string{"gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake", "display_clocks"}

func clockEventReasons(bits uint64) (names []string) {
	for bit, name := range clockEventNames {
		if bits>>bit&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// renderCountedEvent writes the number of events of each kind within the window.
// labelSets returns the label sets of the series with additional labels.
func (r *renderer) renderCountedEvent(e countedEvent, d *deviceSnapshot, labelSets func(extra []label) []labelText) {
	events, window, ok := e.events(d)
	if !ok {
		return
	}
	size := label{"window_size_in_ms", strconv.FormatInt(window.Milliseconds(), 10)}
	counts := map[string]float64{}
	for _, event := range events {
		for _, kind := range e.kinds(event.code) {
			counts[kind]++
		}
	}
	write := func(n float64, extra ...label) {
		slices.SortFunc(extra, func(a, b label) int { return cmp.Compare(a.name, b.name) })
		for _, labels := range labelSets(extra) {
			r.families.addSeries(e.name, e.kind, e.help, labels, n)
		}
	}
	if len(counts) == 0 {
		write(0, size)
	}
	for _, kind := range sortedKeys(counts) {
		write(counts[kind], label{e.label, kind}, size)
	}
}

// totalEvent is a metric of dcgm-exporter that counts events since the exporter started, by
// kind. A kind has no series before its first event.
type totalEvent struct {
	dcgmField
	label  string // of the kind of event
	totals func(*deviceSnapshot) []eventTotal
}

// eventTotal is the number of events of a kind since the exporter started.
type eventTotal struct {
	kind  string
	count float64
}

var totalEvents = []totalEvent{
	{
		dcgmField: dcgmField{name: "DCGM_EXP_XID_ERRORS_TOTAL", kind: counter, unit: "1", help: "XID events since the exporter started, by code.", route: "event set"},
		label:     "xid",
		totals: func(d *deviceSnapshot) (totals []eventTotal) {
			for _, x := range d.xids {
				totals = append(totals, eventTotal{strconv.FormatUint(x.xid, 10), x.count})
			}
			return totals
		},
	},
	{
		dcgmField: dcgmField{name: "DCGM_EXP_CLOCK_EVENTS_TOTAL", kind: counter, unit: "1", help: "Times at which a reason for reduced clocks became active since the exporter started, by reason.", route: "nvmlDeviceGetCurrentClocksEventReasons"},
		label:     "clock_event",
		totals:    func(d *deviceSnapshot) []eventTotal { return d.clockEventTotals },
	},
}

// clockEventCounter counts the times at which each reason for reduced clocks became active.
type clockEventCounter struct {
	last   uint64
	seen   bool // last is set; a reason that is active from the start does not count
	counts map[string]float64
}

func (c *clockEventCounter) observe(bits uint64) {
	if c.counts == nil {
		c.counts = map[string]float64{}
	}
	if c.seen {
		for _, reason := range clockEventReasons(bits &^ c.last) {
			c.counts[reason]++
		}
	}
	c.last, c.seen = bits, true
}

func (c *clockEventCounter) totals() (totals []eventTotal) {
	for _, reason := range sortedKeys(c.counts) {
		totals = append(totals, eventTotal{reason, c.counts[reason]})
	}
	return totals
}

// renderTotalEvent writes the number of events of each kind since the exporter started.
func (r *renderer) renderTotalEvent(e totalEvent, d *deviceSnapshot, labelSets func(extra []label) []labelText) {
	for _, total := range e.totals(d) {
		for _, labels := range labelSets([]label{{e.label, total.kind}}) {
			r.families.addSeries(e.name, e.kind, e.help, labels, total.count)
		}
	}
}

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

// add appends an event and drops the events before the window.
func (h *eventHistory) add(now time.Time, code uint64) {
	h.events = append(h.recent(now), event{now, code})
}

// recent returns a copy of the events within the window.
func (h *eventHistory) recent(now time.Time) []event {
	return slices.DeleteFunc(slices.Clone(h.events), func(e event) bool { return now.Sub(e.at) > h.window })
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

// xidMessages describe the common XIDs of NVIDIA's catalog.
var xidMessages = map[uint64]string{
	0:  "No Error",
	8:  "GPU stopped processing",
	13: "Graphics engine exception",
	31: "GPU memory page fault",
	32: "Corrupted push buffer",
	38: "Driver firmware error",
	43: "GPU stopped processing for a program",
	44: "Graphics engine fault in a context switch",
	45: "Preemptive cleanup after earlier errors",
	48: "Double-bit ECC error",
	61: "Internal micro-controller breakpoint",
	62: "Internal micro-controller halt",
	63: "Row remapping or page retirement recorded",
	64: "Row remapping or page retirement failed",
	68: "Video processor exception",
	69: "Graphics engine class error",
	74: "NVLink error",
	79: "GPU fell off the bus",
	92: "High rate of single-bit ECC errors",
	94: "Contained ECC error",
	95: "Uncontained ECC error",

	119: "GSP RPC timeout",
	120: "GSP error",
}

// xidLabels returns the labels that describe the last XID.
func xidLabels(xid uint64) []label {
	message, ok := xidMessages[xid]
	if !ok {
		message = "Unknown Error"
	}
	return []label{{"err_code", strconv.FormatUint(xid, 10)}, {"err_msg", message}}
}

// severity classifies an XID according to NVIDIA's catalog.
func severity(xid uint64) string {
	switch xid {
	case 48, 62, 64, 74, 79, 95, 119, 120:
		return "critical"
	case 94:
		return "warning"
	case 13, 31, 43:
		return "application"
	}
	return "info"
}

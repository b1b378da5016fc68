package collector

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// occasion is when a device told of an event, or of several as bits.
type occasion struct {
	at   time.Time
	what uint64
}

// recent occasions, oldest first.
type recent []occasion

// add one, and forget those that the window has left behind.
func (r *recent) add(now time.Time, what uint64, window time.Duration) {
	*r = append(r.within(now, window), occasion{now, what})
}

func (r *recent) within(now time.Time, window time.Duration) recent {
	return slices.DeleteFunc(*r, func(o occasion) bool { return now.Sub(o.at) > window })
}

// counted is a metric of dcgm-exporter's that counts each event of the last while.
// A device without any has 0, and no label that names one.
type counted struct {
	field
	label  string // that names the event
	window func(*Config) *time.Duration
	of     func(*known) (events *recent, tells bool)
	names  func(what uint64) []string
}

var countedEvents = []counted{
	{
		field:  field{name: "DCGM_EXP_XID_ERRORS_COUNT", kind: gauge, unit: "1", help: "XID events within the window, by code.", route: "event set"},
		label:  "xid",
		window: func(c *Config) *time.Duration { return &c.XIDWindow },
		of:     func(k *known) (*recent, bool) { return &k.recentXIDs, k.device.ReportsXIDs },
		names:  func(code uint64) []string { return []string{strconv.FormatUint(code, 10)} },
	},
	{
		field:  field{name: "DCGM_EXP_CLOCK_EVENTS_COUNT", kind: gauge, unit: "1", help: "Collections within the window in which clocks were held down, by reason.", route: "nvmlDeviceGetCurrentClocksEventReasons"},
		label:  "clock_event",
		window: func(c *Config) *time.Duration { return &c.ClockEventsWindow },
		of: func(k *known) (*recent, bool) {
			_, tells := k.reading.Get(device.ClockEvents)
			return &k.recentClocks, tells && k.fresh
		},
		names: clockEvents,
	},
}

// clockEventNames by bit, as dcgm-exporter writes them.
var clockEventNames = []string{"gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake", "display_clocks"}

func clockEvents(bits uint64) (names []string) {
	for bit, name := range clockEventNames {
		if bits>>bit&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// renderCounted writes how often each event was within its window, with the labels
// that sets makes of those of the event.
func (c *Collector) renderCounted(p page, e counted, k *known, now time.Time, sets func(extra []label) []labelText) {
	events, tells := e.of(k)
	if !tells {
		return
	}
	window := *e.window(&c.cfg)
	size := label{"window_size_in_ms", strconv.FormatInt(window.Milliseconds(), 10)}
	*events = events.within(now, window)
	counts := map[string]float64{}
	for _, o := range *events {
		for _, name := range e.names(o.what) {
			counts[name]++
		}
	}
	write := func(n float64, extra ...label) {
		slices.SortFunc(extra, func(a, b label) int { return cmp.Compare(a.name, b.name) })
		for _, labels := range sets(extra) {
			p.add(e.name, e.kind, e.help, labels, n)
		}
	}
	if len(counts) == 0 {
		write(0, size)
	}
	for _, name := range sortedKeys(counts) {
		write(counts[name], label{e.label, name}, size)
	}
}

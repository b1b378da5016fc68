package collector

import (
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestXIDsAreCountedAndLastIsKept(t *testing.T) {
	f := setup(t)
	f.source.xids = []device.XID{{UUID: uuid(2), Code: 79}, {UUID: uuid(2), Code: 79}, {UUID: uuid(2), Code: 13}}
	families, _ := f.collect(t)
	if got := value(t, families, "plimsoll_xid_total", "uuid", uuid(2), "xid", "79", "severity", "critical"); got != 2 {
		t.Errorf("XID 79 counted %g times, want 2", got)
	}
	if got := value(t, families, "DCGM_FI_DEV_XID_ERRORS", "UUID", uuid(2), "err_code", "13"); got != 13 {
		t.Errorf("the last XID is %g, want 13", got)
	}
}

func TestLastXIDAbsentWithoutEventSupport(t *testing.T) {
	f := setup(t)
	f.source.noXIDs = true
	if families, _ := f.collect(t); families["DCGM_FI_DEV_XID_ERRORS"] != nil {
		t.Error("an XID of 0 although the device reports no events")
	}
}

// lines returns the series of a metric on device 2, without the labels of the device.
func lines(text, name string) (out []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+"{") && strings.Contains(line, `gpu="2"`) {
			_, rest, _ := strings.Cut(line, `DCGM_FI_DRIVER_VERSION="580.1"`)
			out = append(out, strings.TrimSpace(rest))
		}
	}
	return out
}

// requireLines compares the lines of a metric.
func requireLines(t *testing.T, name string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestXIDsWithinWindowAreCountedByCode(t *testing.T) {
	f := setup(t)
	clock := time.Unix(1_700_000_000, 0)
	f.cfg.Now = func() time.Time { return clock }
	_, text := f.collect(t)
	requireLines(t, "no events", lines(text, "DCGM_EXP_XID_ERRORS_COUNT"), `,window_size_in_ms="300000"} 0`)
	f.source.xids = []device.XID{{UUID: uuid(2), Code: 79}, {UUID: uuid(2), Code: 13}, {UUID: uuid(2), Code: 79}}
	_, text = f.collect(t)
	requireLines(t, "three events", lines(text, "DCGM_EXP_XID_ERRORS_COUNT"), `,window_size_in_ms="300000",xid="13"} 1`, `,window_size_in_ms="300000",xid="79"} 2`)
	clock = clock.Add(4 * time.Minute)
	f.source.lost[uuid(2)] = true // earlier events still count
	f.source.xids = []device.XID{{UUID: uuid(2), Code: 79}}
	f.collect(t)
	clock = clock.Add(2 * time.Minute)
	_, text = f.collect(t)
	requireLines(t, "one event in the window", lines(text, "DCGM_EXP_XID_ERRORS_COUNT"), `,window_size_in_ms="300000",xid="79"} 1`)
	clock = clock.Add(time.Hour)
	_, text = f.collect(t)
	requireLines(t, "no event in the window", lines(text, "DCGM_EXP_XID_ERRORS_COUNT"), `,window_size_in_ms="300000"} 0`)
}

func TestClockEventsWithinWindowAreCountedByReason(t *testing.T) {
	f := setup(t)
	clock := time.Unix(1_700_000_000, 0)
	f.cfg.Now, f.cfg.ClockEventsWindow = func() time.Time { return clock }, time.Minute
	if _, text := f.collect(t); len(lines(text, "DCGM_EXP_CLOCK_EVENTS_COUNT")) > 0 {
		t.Error("clock events of a device that does not report them")
	}
	tick := func(events float64) (text string) {
		f.source.clockEvents = &events
		clock = clock.Add(20 * time.Second)
		_, text = f.collect(t)
		return text
	}
	requireLines(t, "full clocks", lines(tick(0), "DCGM_EXP_CLOCK_EVENTS_COUNT"), `,window_size_in_ms="60000"} 0`)
	tick(0b101)
	text := tick(0b100)
	requireLines(t, "reduced clocks", lines(text, "DCGM_EXP_CLOCK_EVENTS_COUNT"), `,clock_event="gpu_idle",window_size_in_ms="60000"} 1`, `,clock_event="power_cap",window_size_in_ms="60000"} 2`)
	tick(0)
	tick(0)
	requireLines(t, "a minute later", lines(tick(0), "DCGM_EXP_CLOCK_EVENTS_COUNT"), `,clock_event="power_cap",window_size_in_ms="60000"} 1`)
	f.source.lost[uuid(2)] = true
	if text := tick(0); len(lines(text, "DCGM_EXP_CLOCK_EVENTS_COUNT")) > 0 {
		t.Error("clock events of a lost device")
	}
}

func TestCounterFileSelectsCountedEvents(t *testing.T) {
	f := setup(t)
	if unsupported := f.SetCounters([]Counter{{"DCGM_EXP_XID_ERRORS_COUNT", "counter", "XIDs."}}); len(unsupported) > 0 {
		t.Errorf("unsupported: %v", unsupported)
	}
	_, text := f.collect(t)
	if !strings.Contains(text, "# HELP DCGM_EXP_XID_ERRORS_COUNT XIDs.\n# TYPE DCGM_EXP_XID_ERRORS_COUNT counter\n") || strings.Contains(text, "DCGM_EXP_CLOCK") {
		t.Errorf("%s", text)
	}
}

// dcgm-exporter writes the labels of counted events before the attributes, and the labels
// of the last XID sorted among the attributes.
func TestEventLabelsAreInDCGMExporterOrder(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["team-a/train/main"] = []string{uuid(2)}
	f.source.xids = []device.XID{{UUID: uuid(2), Code: 79}}
	_, text := f.collect(t)
	requireLines(t, "last XID", lines(text, "DCGM_FI_DEV_XID_ERRORS"), `,container="main",err_code="79",err_msg="GPU fell off the bus",namespace="team-a",pod="train"} 79`)
	requireLines(t, "XID count", lines(text, "DCGM_EXP_XID_ERRORS_COUNT"), `,window_size_in_ms="300000",xid="79",container="main",namespace="team-a",pod="train"} 1`)
	f.source.xids = []device.XID{{UUID: uuid(2), Code: 4711}}
	_, text = f.collect(t)
	requireLines(t, "unknown XID", lines(text, "DCGM_FI_DEV_XID_ERRORS"), `,container="main",err_code="4711",err_msg="Unknown Error",namespace="team-a",pod="train"} 4711`)
}

// Thousands of events in a collection, as a broken device reports them, cost no more than a
// copy of the window at each collection.
func TestManyEventsAreNotCopied(t *testing.T) {
	var h eventHistory
	start := time.Now()
	const n = 100_000
	allocations := testing.AllocsPerRun(1, func() {
		h = eventHistory{window: time.Minute}
		for i := range n {
			h.add(start.Add(time.Duration(i)*time.Millisecond), 13)
		}
	})
	if allocations > 1000 {
		t.Errorf("%g allocations for %d events", allocations, n)
	}
	end := start.Add((n - 1) * time.Millisecond)
	if got := len(h.recent(end)); got != 60_001 {
		t.Errorf("%d events within a minute, want 60001", got)
	}
	if got := h.recent(end.Add(time.Hour)); len(got) != 0 {
		t.Errorf("%d events after an hour, want none", len(got))
	}
}

func TestTotalsOfEventsSinceStart(t *testing.T) {
	f := setup(t)
	clockEvents := 1.0 // active from the start, which is not an event
	f.source.clockEvents = &clockEvents
	_, text := f.collect(t)
	requireLines(t, "no XID", lines(text, "DCGM_EXP_XID_ERRORS_TOTAL"))
	requireLines(t, "no clock event", lines(text, "DCGM_EXP_CLOCK_EVENTS_TOTAL"))
	f.source.xids = []device.XID{{UUID: uuid(2), Code: 79}, {UUID: uuid(2), Code: 13}, {UUID: uuid(2), Code: 79}}
	for _, clockEvents = range []float64{0b101, 0b101, 0b001, 0b100, 0b101} {
		_, text = f.collect(t)
	}
	requireLines(t, "XIDs", lines(text, "DCGM_EXP_XID_ERRORS_TOTAL"), `,xid="13"} 1`, `,xid="79"} 2`)
	requireLines(t, "clock events", lines(text, "DCGM_EXP_CLOCK_EVENTS_TOTAL"), `,clock_event="gpu_idle"} 1`, `,clock_event="power_cap"} 2`)
	if unsupported := f.SetCounters([]Counter{{"DCGM_EXP_XID_ERRORS_TOTAL", "counter", "XIDs."}}); len(unsupported) > 0 {
		t.Errorf("unsupported: %v", unsupported)
	}
	if _, text = f.collect(t); !strings.Contains(text, "# HELP DCGM_EXP_XID_ERRORS_TOTAL XIDs.\n# TYPE DCGM_EXP_XID_ERRORS_TOTAL counter\n") || strings.Contains(text, "DCGM_EXP_CLOCK") {
		t.Errorf("%.500s", text)
	}
}

func TestXIDSeverities(t *testing.T) {
	for code, want := range map[uint64]string{79: "critical", 48: "critical", 140: "critical", 94: "warning", 144: "warning", 31: "application", 43: "application", 63: "info", 0: "unknown", 61: "unknown", 173: "unknown", 4711: "unknown"} {
		if got := severity(code); got != want {
			t.Errorf("XID %d is %s, want %s", code, got, want)
		}
	}
}

// The sum of the reasons counts the time of heat once.
func TestThermalThrottlingIsCountedOnce(t *testing.T) {
	for name, divided := range map[string]bool{"newer driver": true, "older driver": false} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			f.source.override = func(_ device.Device, r *device.Reading) {
				r.Set(device.ThermalViolation, 3e9)
				if divided {
					r.Set(device.SWThermalSlowdown, 1e9)
					r.Set(device.HWThermalSlowdown, 2e9)
				}
			}
			families, _ := f.collect(t)
			sum := 0.0
			for _, m := range families["plimsoll_device_throttled_seconds_total"].Metric {
				sum += m.GetCounter().GetValue() / 8 // devices
			}
			if sum != 3 {
				t.Errorf("%g s, want 3", sum)
			}
			if got := value(t, families, "DCGM_FI_DEV_THERMAL_VIOLATION", "gpu", "0"); got != 3e9 {
				t.Errorf("dcgm-exporter's metric is %g", got)
			}
		})
	}
}

package collector

import (
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func lines(text, name string) (out []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+"{") && strings.Contains(line, `gpu="2"`) {
			_, rest, _ := strings.Cut(line, `DCGM_FI_DRIVER_VERSION="580.1"`)
			out = append(out, strings.TrimSpace(rest))
		}
	}
	return out
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestXIDsWithinTheWindowAreCountedByCode(t *testing.T) {
	f := setup(t)
	clock := time.Unix(1_700_000_000, 0)
	f.cfg.Now = func() time.Time { return clock }
	_, text := f.collect(t)
	same(t, "none", lines(text, "DCGM_EXP_XID_ERRORS_COUNT"), `,window_size_in_ms="300000"} 0`)
	f.box.xids = []device.XID{{UUID: uuid(2), Code: 79}, {UUID: uuid(2), Code: 13}, {UUID: uuid(2), Code: 79}}
	_, text = f.collect(t)
	same(t, "three", lines(text, "DCGM_EXP_XID_ERRORS_COUNT"), `,window_size_in_ms="300000",xid="13"} 1`, `,window_size_in_ms="300000",xid="79"} 2`)
	clock = clock.Add(4 * time.Minute)
	f.box.lost[uuid(2)] = true // what it told counts on
	f.box.xids = []device.XID{{UUID: uuid(2), Code: 79}}
	f.collect(t)
	clock = clock.Add(2 * time.Minute)
	_, text = f.collect(t)
	same(t, "one is left", lines(text, "DCGM_EXP_XID_ERRORS_COUNT"), `,window_size_in_ms="300000",xid="79"} 1`)
	clock = clock.Add(time.Hour)
	_, text = f.collect(t)
	same(t, "none is left", lines(text, "DCGM_EXP_XID_ERRORS_COUNT"), `,window_size_in_ms="300000"} 0`)
}

func TestClockEventsWithinTheWindowAreCountedByReason(t *testing.T) {
	f := setup(t)
	clock := time.Unix(1_700_000_000, 0)
	f.cfg.Now, f.cfg.ClockEventsWindow = func() time.Time { return clock }, time.Minute
	if _, text := f.collect(t); len(lines(text, "DCGM_EXP_CLOCK_EVENTS_COUNT")) > 0 {
		t.Error("clock events of a device that does not tell them")
	}
	tick := func(events float64) (text string) {
		f.box.clockEvents = &events
		clock = clock.Add(20 * time.Second)
		_, text = f.collect(t)
		return text
	}
	same(t, "clocks are free", lines(tick(0), "DCGM_EXP_CLOCK_EVENTS_COUNT"), `,window_size_in_ms="60000"} 0`)
	tick(0b101)
	text := tick(0b100)
	same(t, "held down", lines(text, "DCGM_EXP_CLOCK_EVENTS_COUNT"), `,clock_event="gpu_idle",window_size_in_ms="60000"} 1`, `,clock_event="power_cap",window_size_in_ms="60000"} 2`)
	tick(0)
	tick(0)
	same(t, "a minute later", lines(tick(0), "DCGM_EXP_CLOCK_EVENTS_COUNT"), `,clock_event="power_cap",window_size_in_ms="60000"} 1`)
	f.box.lost[uuid(2)] = true
	if text := tick(0); len(lines(text, "DCGM_EXP_CLOCK_EVENTS_COUNT")) > 0 {
		t.Error("clock events of a device that is lost")
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

// dcgm-exporter writes an event as a label, before the attributes, and the latched
// XID as attributes, sorted among those that name the holder.
func TestEventsStandWhereDCGMExporterHasThem(t *testing.T) {
	f := setup(t)
	f.kubelet.held["team-a/train/main"] = []string{uuid(2)}
	f.box.xids = []device.XID{{UUID: uuid(2), Code: 79}}
	_, text := f.collect(t)
	same(t, "latched", lines(text, "DCGM_FI_DEV_XID_ERRORS"), `,container="main",err_code="79",err_msg="GPU fell off the bus",namespace="team-a",pod="train"} 79`)
	same(t, "counted", lines(text, "DCGM_EXP_XID_ERRORS_COUNT"), `,window_size_in_ms="300000",xid="79",container="main",namespace="team-a",pod="train"} 1`)
	f.box.xids = []device.XID{{UUID: uuid(2), Code: 4711}}
	_, text = f.collect(t)
	same(t, "unknown", lines(text, "DCGM_FI_DEV_XID_ERRORS"), `,container="main",err_code="4711",err_msg="Unknown Error",namespace="team-a",pod="train"} 4711`)
}

package tpu

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// coreStates returns the state of the cores of two chips, with the program counters of the
// first and the second chip.
func coreStates(first, second string) string {
	return `core_states{key:1 value{core_id{chip_id:7} sequencer_info{pc:` + second + `}}} core_states{key:0 value{core_id{chip_id:3} sequencer_info{pc:` + first + `}}}`
}

func TestStallByProgramCounters(t *testing.T) {
	runtime := startRuntime(t, map[string]string{queueSize: gauges(0, "as_int", 3, 3), uptimeSeconds: `metrics{gauge{as_int:1}}`})
	s := newSource(fakeSysfs(t, "0x0063", "0x0063"), runtime.address)
	clock, uptime := time.Unix(1_700_000_000, 0), 1
	s.now = func() time.Time { return clock }
	expect := func(state string, seconds int, cores, want string) {
		t.Helper()
		clock = clock.Add(time.Duration(seconds) * time.Second)
		uptime += seconds
		runtime.update(func() {
			runtime.status = cores
			runtime.metrics[uptimeSeconds] = gauges(0, "as_int", float64(uptime))
		})
		if got := valuesOf(readAll(t, s), device.StalledSeconds); got != want {
			t.Errorf("%s: stalled seconds are %s, want %s", state, got, want)
		}
	}
	expect("first sample", 0, coreStates("10", "20"), "0 0")
	expect("only the first chip progressed", 30, coreStates("11", "20"), "0 30")
	expect("only the first chip progressed again", 30, coreStates("12", "20"), "0 60")
	runtime.update(func() { runtime.metrics[queueSize] = gauges(0, "as_int", 3, 0) })
	expect("nothing queued on the second chip", 30, coreStates("13", "20"), "0 0")
	uptime -= 30
	expect("the uptime stands still", 30, coreStates("14", "20"), "30 0")
	runtime.update(func() { runtime.metrics[queueSize] = gauges(0, "as_int", 3, 3) })
	uptime -= 100
	expect("the runtime restarted", 30, coreStates("14", "20"), "0 0")
}

// Without program counters the idle time of the cores indicates progress.
func TestStallByIdleTime(t *testing.T) {
	runtime := startRuntime(t, map[string]string{queueSize: gauges(0, "as_int", 1), idleSeconds: gauges(0, "as_double", 500)})
	s := newSource(fakeSysfs(t, "0x0063"), runtime.address)
	clock := time.Unix(1_700_000_000, 0)
	s.now = func() time.Time { return clock }
	readAll(t, s)
	clock = clock.Add(40 * time.Second)
	runtime.update(func() { runtime.metrics[idleSeconds] = gauges(0, "as_double", 540) })
	if got := valuesOf(readAll(t, s), device.StalledSeconds); got != "40" {
		t.Errorf("idle for 540 s: stalled seconds are %s, want 40", got)
	}
	clock = clock.Add(40 * time.Second)
	runtime.update(func() { runtime.metrics[idleSeconds] = gauges(0, "as_double", 3) })
	if got := valuesOf(readAll(t, s), device.StalledSeconds); got != "0" {
		t.Errorf("idle for 3 s: stalled seconds are %s, want 0", got)
	}
	runtime.update(func() { runtime.unlisted[idleSeconds] = true })
	if got := valuesOf(readAll(t, s), device.StalledSeconds); got != "-" {
		t.Errorf("without an indicator of progress: stalled seconds are %s, want them absent", got)
	}
}

// Core states of another number of chips cannot be assigned. The service reports the error.
func TestStallReportsUnassignableCores(t *testing.T) {
	runtime := startRuntime(t, map[string]string{queueSize: gauges(0, "as_int", 3)})
	runtime.status = coreStates("1", "2")
	s := newSource(fakeSysfs(t, "0x0063"), runtime.address)
	readAll(t, s)
	if got := s.Services(); len(got) != 1 || got[0].State != device.ServiceServing || got[0].Err == nil {
		t.Errorf("services are %v, want a serving service with an error", got)
	}
}

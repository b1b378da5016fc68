package nvml

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestReadProcesses(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	s.EnableProcesses()
	now := time.Unix(1_800_000_000, 0)
	s.now = func() time.Time { return now }
	micro := uint64(now.UnixMicro())
	f.setProcess(1, 0, 101, 3<<30, 40, micro-1, 0)
	f.setProcess(1, 1, 102, 1<<30, 5, micro-1, 1) // a client of MPS
	f.setProcess(1, 2, 103, memoryNotAvailable, 0, micro-2e6, 0)
	f.setProcess(1, 3, 101, 2<<30, 0, micro-2e6, 1) // process 101 also is a client of MPS
	devices := listDevices(t, s)
	expect := func(state string, want *device.Processes) {
		t.Helper()
		if diff := cmp.Diff(want, readDevice(t, s, devices[1]).Processes); diff != "" {
			t.Errorf("%s: %s", state, diff)
		}
	}
	expectRequested := func(want uint64) {
		t.Helper()
		if got := f.get(wordProcesses + 1*processWords + processLastSeen); got != want {
			t.Errorf("samples since %d were requested, want since %d", got, want)
		}
	}
	want := &device.Processes{Memory: map[int]float64{101: 5 << 30, 102: 1 << 30, 103: 0}, Busy: map[int]float64{101: 40, 102: 5}}
	expect("first reading", want)
	expectRequested(micro - 1e6) // the last second
	f.setProcess(1, 0, 101, 3<<30, 30, micro+5e5, 0)
	now = now.Add(time.Second)
	want.Busy = map[int]float64{101: 30}
	expect("a new sample of process 101", want)
	expectRequested(micro - 1) // the newest sample of the first reading
	want.Busy = map[int]float64{}
	expect("no new sample", want)
	f.setUnsupported(1, 1<<51)
	want.Busy = nil
	expect("utilization is unsupported", want)
	f.setUnsupported(1, 1<<49|1<<50|1<<51)
	expect("all process calls are unsupported", nil)
}

func TestReadOmitsProcessesByDefault(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setProcess(0, 0, 101, 3<<30, 40, 1<<60, 0)
	s := f.open()
	if got := readDevice(t, s, listDevices(t, s)[0]).Processes; got != nil {
		t.Errorf("processes are %v, want none", got)
	}
}

package nvml

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Words of a device's processes in the fake; testdata/fake/processes.c has the same ones.
const (
	processWords, processFields, processLastSeen = 24, 5, 20
	processesAt                                  = wordDevices + maxDevices*(deviceWords+migWords)
)

// process n of device i.
func (f *fake) process(i, n int, pid, memory, sm, stamp, mps uint64) {
	for word, v := range []uint64{pid, memory, sm, stamp, mps} {
		f.set(processesAt+i*processWords+n*processFields+word, v)
	}
}

func TestProcesses(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	s.TellProcesses()
	now := time.Unix(1_800_000_000, 0)
	s.now = func() time.Time { return now }
	micro := uint64(now.UnixMicro())
	f.process(1, 0, 101, 3<<30, 40, micro-1, 0)
	f.process(1, 1, 102, 1<<30, 5, micro-1, 1) // a client of MPS
	f.process(1, 2, 103, notAvailable, 0, micro-2e6, 0)
	f.process(1, 3, 101, 2<<30, 0, micro-2e6, 1) // the same by way of MPS
	devices := list(t, s)
	want := &device.Processes{Memory: map[int]float64{101: 5 << 30, 102: 1 << 30, 103: 0}, Busy: map[int]float64{101: 40, 102: 5}}
	if diff := cmp.Diff(want, read(t, s, devices[1]).Processes); diff != "" {
		t.Error(diff)
	}
	if got := f.get(processesAt + 1*processWords + processLastSeen); got != micro-1e6 {
		t.Errorf("at first it asked for samples since %d, want the last second, since %d", got, micro-1e6)
	}
	// Only 101 has worked since.
	f.process(1, 0, 101, 3<<30, 30, micro+5e5, 0)
	now = now.Add(time.Second)
	want.Busy = map[int]float64{101: 30}
	if diff := cmp.Diff(want, read(t, s, devices[1]).Processes); diff != "" {
		t.Error(diff)
	}
	if got := f.get(processesAt + 1*processWords + processLastSeen); got != micro-1 {
		t.Errorf("then it asked for samples since %d, want the newest that it was given, %d", got, micro-1)
	}
	want.Busy = map[int]float64{}
	if diff := cmp.Diff(want, read(t, s, devices[1]).Processes); diff != "" {
		t.Errorf("when nobody has worked: %s", diff)
	}
	f.unsupported(1, 1<<51)
	want.Busy = nil
	if diff := cmp.Diff(want, read(t, s, devices[1]).Processes); diff != "" {
		t.Errorf("where only memory is told: %s", diff)
	}
	f.unsupported(1, 1<<49|1<<50|1<<51)
	if got := read(t, s, devices[1]).Processes; got != nil {
		t.Errorf("where nothing is told: %v", got)
	}
}

func TestProcessesAreNotAskedUnlessWanted(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.process(0, 0, 101, 3<<30, 40, 1<<60, 0)
	s := f.open()
	if got := read(t, s, list(t, s)[0]).Processes; got != nil {
		t.Errorf("it told %v", got)
	}
}

package sim

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

var quiet = slog.New(slog.DiscardHandler)

const twoDevices = `{"seed":7,"devices":[
 {"uuid":"GPU-a","model":"NVIDIA L4","memoryMiB":23034,"state":"ok","background":0},
 {"uuid":"GPU-b","model":"NVIDIA L4","memoryMiB":23034,"state":"ok","background":0}]}`

// run a source for n seconds of its own clock and return a device's values.
func run(t *testing.T, s *Source, n int, index int) []float64 {
	t.Helper()
	clock := time.Unix(1_700_000_000, 0)
	s.now = func() time.Time { return clock }
	var values []float64
	for range n {
		clock = clock.Add(time.Second)
		devices, err := s.Devices(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Read(context.Background(), devices[index])
		if err != nil {
			t.Fatal(err)
		}
		for f := range device.NumFields {
			if v, ok := r.Get(f); ok {
				values = append(values, v)
			}
		}
	}
	return values
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSameSeedSameValues(t *testing.T) {
	path := write(t, twoDevices)
	held := func(string) bool { return true }
	a, b := run(t, FromFile(path, held, quiet), 20, 0), run(t, FromFile(path, held, quiet), 20, 0)
	if len(a) == 0 || len(a) != len(b) {
		t.Fatal("no values")
	}
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("value %d differs: %g and %g", i, a[i], b[i])
		}
	}
	c := run(t, FromFile(write(t, strings.Replace(twoDevices, "7", "8", 1)), held, quiet), 20, 0)
	same := true
	for i := range a {
		same = same && a[i] == c[i]
	}
	if same {
		t.Fatal("another seed gives the same values")
	}
}

func TestAHeldDeviceBecomesBusyAndCoolsDown(t *testing.T) {
	held := true
	s := FromFile(write(t, twoDevices), func(uuid string) bool { return held && uuid == "GPU-a" }, quiet)
	clock := time.Unix(1_700_000_000, 0)
	s.now = func() time.Time { return clock }
	utilization := func(index int) float64 {
		var last float64
		for range 10 {
			clock = clock.Add(time.Second)
			devices, err := s.Devices(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Read(context.Background(), devices[index])
			if err != nil {
				t.Fatal(err)
			}
			last, _ = r.Get(device.GPUUtil)
		}
		return last
	}
	if got := utilization(0); got < 85 {
		t.Errorf("a held device is at %g%%", got)
	}
	if got := utilization(1); got != 0 {
		t.Errorf("a device that nobody holds is at %g%%", got)
	}
	held = false
	if got := utilization(0); got > 1 {
		t.Errorf("a device that was given back is at %g%%", got)
	}
}

func TestBadStateKeepsTheLastGoodOne(t *testing.T) {
	path := write(t, twoDevices)
	s := FromFile(path, func(string) bool { return false }, quiet)
	if _, err := s.Devices(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"devices":[{"uuid":"GPU-a","model":"m","memoryMiB":1,"state":"sad"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	devices, err := s.Devices(context.Background())
	if err != nil || len(devices) != 2 {
		t.Fatalf("after a bad write: %d devices, %v", len(devices), err)
	}
	_, err = FromFile(path, func(string) bool { return false }, quiet).Devices(context.Background())
	if err == nil || !strings.Contains(err.Error(), `must be ok, lost or hung, not "sad"`) {
		t.Fatalf("a bad state at the start: %v", err)
	}
}

func TestScenarioXID79LosesADevice(t *testing.T) {
	s, err := FromScenario("xid79", 1, func(string) bool { return false }, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return time.Now().Add(11 * time.Second) }
	devices, err := s.Devices(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if xids := s.XIDs(); len(xids) != 1 || xids[0].Code != 79 {
		t.Fatalf("XIDs are %v", xids)
	}
	if _, err := s.Read(context.Background(), devices[3]); !errors.Is(err, device.ErrLost) {
		t.Fatalf("the device answers %v", err)
	}
	if _, err := FromScenario("nope", 1, nil, quiet); err == nil || !strings.Contains(err.Error(), "steady") {
		t.Fatalf("an unknown scenario: %v", err)
	}
}

func TestScenarioThermalThrottlesTheHotDevice(t *testing.T) {
	s, err := FromScenario("thermal", 1, func(string) bool { return false }, quiet)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	read := func(index int, since time.Duration) device.Reading {
		s.now = func() time.Time { return start.Add(since) }
		devices, err := s.Devices(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Read(context.Background(), devices[index])
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for index, throttles := range map[int]bool{5: true, 0: false} {
		read(index, 0)
		read(index, 50*time.Second)
		before := read(index, 60*time.Second)
		after := read(index, 70*time.Second)
		temperature, _ := after.Get(device.GPUTemp)
		from, _ := before.Get(device.ThermalViolation)
		to, _ := after.Get(device.ThermalViolation)
		left, _ := after.Get(device.ThermalMargin)
		events, _ := after.Get(device.ClockEvents)
		if (left <= 0) != throttles || (int(events)&eventHWThermal != 0) != throttles {
			t.Errorf("device %d has %g °C left and clock events %g", index, left, events)
		}
		if (temperature >= throttleAt) != throttles || (to-from == 10e9) != throttles {
			t.Errorf("device %d is at %g °C and was throttled for %g ns of 10 s", index, temperature, to-from)
		}
	}
}

// Which of a device's parts are active is told from Hopper on, as NVML does.
func TestWhatAProductCanTell(t *testing.T) {
	for model, want := range map[string]struct {
		watts float64
		tells bool
	}{"NVIDIA L4": {72, false}, "NVIDIA A100-SXM4-80GB": {400, false}, "NVIDIA H100 80GB HBM3": {700, true}, "NVIDIA H200": {700, true}, "NVIDIA GB200": {700, true}} {
		s := FromFile(write(t, strings.ReplaceAll(twoDevices, "NVIDIA L4", model)), func(string) bool { return true }, quiet)
		devices, err := s.Devices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for i := range 20 {
			s.now = func() time.Time { return start.Add(time.Duration(i) * time.Second) }
			r, err := s.Read(t.Context(), devices[0])
			if err != nil {
				t.Fatal(err)
			}
			limit, _ := r.Get(device.PowerLimit)
			power, _ := r.Get(device.PowerUsage)
			_, tells := r.Get(device.TensorActive)
			if limit != want.watts || power > limit || tells != want.tells {
				t.Errorf("%s draws %g W of %g, and tells of its tensor cores %t", model, power, limit, tells)
			}
		}
	}
}

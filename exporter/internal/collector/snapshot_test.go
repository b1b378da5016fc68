package collector

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// setupBusyNode returns a node whose metrics depend on every part of the accounting:
// energy, shared devices, idle time, XIDs, clock events and implausible values. advance
// moves the clock forward and lets every device use 1000 J.
func setupBusyNode(t *testing.T) (f *fixture, advance func(time.Duration)) {
	t.Helper()
	f = setup(t)
	clock, energy := time.Unix(1_700_000_000, 0), 5e9
	f.cfg.Now = func() time.Time { return clock }
	f.source.override = func(_ device.Device, r *device.Reading) {
		r.Time = clock
		r.Set(device.GPUUtil, 0)
		r.Set(device.PowerUsage, 400)
		r.Set(device.TotalEnergy, energy)
		r.Set(device.ClockEvents, 0b100)
		r.Set(device.MemoryTemp, 1000)
	}
	f.kubelet.holdings["ml/a/main"] = []string{uuid(0) + "::0"}
	f.kubelet.holdings["ml/b/main"] = []string{uuid(0) + "::1"}
	f.kubelet.holdings["ml/c/main"] = []string{uuid(1)}
	return f, func(d time.Duration) {
		clock = clock.Add(d)
		energy += 1000 * 1000
		f.source.xids = []device.XID{{UUID: uuid(2), Code: 79}}
	}
}

func (f *fixture) snapshot() *snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	pods, err := f.pods.Last()
	return f.account(f.cfg.Now(), pods, err)
}

func (f *fixture) render(s *snapshot) string {
	var b bytes.Buffer
	plainText.write(&b, render(f.cfg.Node, f.cfg.Labels, s))
	return b.String()
}

// dropCallDurations removes the metrics of durations, which differ between runs.
func dropCallDurations(s *snapshot) *snapshot {
	for _, d := range s.devices {
		d.readDuration = 0
	}
	return s
}

func TestRenderTwiceGivesSameText(t *testing.T) {
	f, advance := setupBusyNode(t)
	f.collect(t)
	advance(time.Minute)
	f.collect(t)
	s := f.snapshot()
	first := f.render(s)
	for range 3 {
		if diff := cmp.Diff(first, f.render(s)); diff != "" {
			t.Fatal(diff)
		}
	}
}

// A snapshot does not change when later collections update the accounting.
func TestSnapshotIsImmutable(t *testing.T) {
	f, advance := setupBusyNode(t)
	f.collect(t)
	s := f.snapshot()
	before := f.render(s)
	for range 3 {
		advance(4 * time.Minute)
		f.kubelet.holdings["ml/d/main"] = []string{uuid(3)}
		f.collect(t)
	}
	if diff := cmp.Diff(before, f.render(s)); diff != "" {
		t.Error(diff)
	}
}

// Two collectors see the same collections. Rendering one of them more often does not
// change its energy, idle time or event counts.
func TestRenderDoesNotAccumulate(t *testing.T) {
	var texts []string
	for _, renderings := range []int{0, 5} {
		f, advance := setupBusyNode(t)
		for range 4 {
			f.collect(t)
			s := f.snapshot()
			for range renderings {
				f.render(s)
			}
			advance(time.Minute)
		}
		families, _ := f.collect(t)
		for pod, want := range map[string]float64{"a": 2000, "b": 2000, "c": 4000} {
			if got := value(t, families, "plimsoll_pod_device_energy_joules_total", "pod", pod); got != want {
				t.Errorf("after %d renderings pod %s has %g J, want %g", renderings, pod, got, want)
			}
		}
		if got := value(t, families, "plimsoll_device_idle_allocated_seconds", "uuid", uuid(1)); got != 240 {
			t.Errorf("after %d renderings the device has been idle for %g s, want 240", renderings, got)
		}
		texts = append(texts, f.render(dropCallDurations(f.snapshot())))
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Error(diff)
	}
}

// Accounting again without a new reading attributes no energy and counts no event.
func TestAccountTwiceIsIdempotent(t *testing.T) {
	f, advance := setupBusyNode(t)
	f.collect(t)
	advance(time.Minute)
	f.collect(t)
	first := f.render(f.snapshot())
	if diff := cmp.Diff(first, f.render(f.snapshot())); diff != "" {
		t.Error(diff)
	}
}

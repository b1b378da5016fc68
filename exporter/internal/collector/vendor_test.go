package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// The driver serializes calls with a lock. If every device hangs, the lock is held.
func TestDriverStalledWhenAllDevicesHang(t *testing.T) {
	f := setup(t)
	f.cfg.Deadline = hangDeadline
	release := make(chan struct{})
	for i := range 7 {
		f.source.hung[uuid(i)] = release
	}
	families, _ := f.collect(t)
	if value(t, families, "plimsoll_exporter_driver_stalled", "node", "node-1") != 0 || f.Healthy() != nil {
		t.Error("the driver is reported stalled although a device responds")
	}
	f.source.mu.Lock()
	f.source.hung[uuid(7)] = release
	f.source.mu.Unlock()
	families, _ = f.collect(t)
	if value(t, families, "plimsoll_exporter_driver_stalled", "node", "node-1") != 1 || f.Healthy() == nil {
		t.Error("the driver is not reported stalled although no device responds")
	}
	for i := range 8 { // rules use no hung device
		if value(t, families, "plimsoll_device_hung", "uuid", uuid(i)) != 1 {
			t.Errorf("device %d does not hang although no device responds", i)
		}
	}
	close(release)
	for value(t, families, "plimsoll_exporter_driver_stalled", "node", "node-1") != 0 {
		families, _ = f.collect(t)
	}
	if err := f.Healthy(); err != nil {
		t.Error(err)
	}
}

// A listing that stalls or fails leaves no measurements: a device that was idle may be busy now.
func TestDriverStalledEndsMeasurements(t *testing.T) {
	f := setup(t)
	f.collect(t)
	release := make(chan struct{})
	f.source.stall = release
	f.cfg.Deadline = hangDeadline / 10 // the limit of a listing is ten times that of a call
	for range 2 {
		if err := f.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "the driver does not respond") {
			t.Fatalf("a stalled listing: %v", err)
		}
	}
	families, _ := f.scrape(t)
	if value(t, families, "plimsoll_exporter_driver_stalled", "node", "node-1") != 1 || families["DCGM_FI_DEV_GPU_UTIL"] != nil {
		t.Error("driver_stalled is not 1, or earlier values are still there")
	}
	if err := f.Healthy(); err == nil {
		t.Error("healthy although the driver is stalled")
	}
	f.source.mu.Lock()
	f.source.stall = nil
	f.source.mu.Unlock()
	close(release)
	f.cfg.Deadline = longDeadline
	families, _ = f.collect(t)
	if value(t, families, "plimsoll_exporter_driver_stalled", "node", "node-1") != 0 || f.Healthy() != nil {
		t.Error("still reported stalled after it responded")
	}
}

// A job whose device was idle at the last listing may be busy since, and must not be reclaimed. What
// does not depend on a reading stays.
func TestFailedListingEndsMeasurements(t *testing.T) {
	f := setup(t)
	now := time.Unix(1000, 0)
	f.cfg.Now = func() time.Time { return now }
	f.source.override = func(_ device.Device, r *device.Reading) { r.Time = now; r.Set(device.GPUUtil, 0) }
	f.kubelet.holdings["ml/job/main"] = []string{uuid(0)}
	f.collect(t)
	now = now.Add(time.Minute)
	f.collect(t)
	f.source.err = errors.New("Unknown Error")
	now = now.Add(2 * time.Hour)
	if err := f.Collect(t.Context()); err == nil {
		t.Fatal("the collection succeeds")
	}
	families, text := f.scrape(t)
	for _, name := range []string{"DCGM_FI_DEV_GPU_UTIL", "plimsoll_device_idle_allocated_seconds", "plimsoll_pod_device_utilization_ratio"} {
		if families[name] != nil {
			t.Errorf("%s is there 2 h after the last reading:\n%s", name, text)
		}
	}
	if got := value(t, families, "plimsoll_exporter_last_collection_timestamp_seconds"); got != 1060 {
		t.Errorf("the last collection is of %f", got)
	}
	if value(t, families, "plimsoll_device_lost", "uuid", uuid(0)) != 0 || value(t, families, "plimsoll_device_owner_info", "uuid", uuid(0), "pod", "job") != 1 {
		t.Error("the device or its holder is gone")
	}
	if free := value(t, families, "plimsoll_node_devices", "state", "free"); free != 0 {
		t.Errorf("%v devices are free although none can be read", free)
	}
	f.source.err = nil
	families, _ = f.collect(t)
	if got := value(t, families, "plimsoll_device_idle_allocated_seconds", "uuid", uuid(0)); got > 1 {
		t.Errorf("idle for %v s after the failure", got)
	}
}

// setupTwoVendors collects from two sources.
func setupTwoVendors(t *testing.T, one, two device.Source) *fixture {
	t.Helper()
	f := setup(t)
	f.Collector = New(Config{Node: "node-1", Interval: time.Second, Deadline: longDeadline, Log: slog.New(slog.DiscardHandler)},
		f.pods, NamedSource{"one", one}, NamedSource{"two", two})
	return f
}

func TestStalledVendorDoesNotAffectOther(t *testing.T) {
	one, two := &singleSource{uuid: "ONE-0"}, &singleSource{uuid: "TWO-0"}
	f := setupTwoVendors(t, one, two)
	f.collect(t)
	release := make(chan struct{})
	one.set(release)
	f.cfg.Deadline = hangDeadline
	if err := f.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	families, text := f.scrape(t)
	if got := value(t, families, "DCGM_FI_DEV_GPU_UTIL", "UUID", "TWO-0"); got != 2 {
		t.Errorf("the other vendor's value is that of collection %g:\n%s", got, text)
	}
	if got := len(families["DCGM_FI_DEV_GPU_UTIL"].Metric); got != 1 {
		t.Errorf("%d devices have a value although the other vendor is stalled:\n%s", got, text)
	}
	if value(t, families, "plimsoll_exporter_source_up", "source", "one") != 0 || value(t, families, "plimsoll_exporter_source_up", "source", "two") != 1 {
		t.Errorf("source_up is wrong:\n%s", text)
	}
	if f.Healthy() == nil {
		t.Error("healthy although the driver is stalled")
	}
	one.set(nil)
	close(release)
	f.collect(t)
	if err := f.Healthy(); err != nil {
		t.Error(err)
	}
}

// The rules judge a node by its oldest collection, so that old values of one vendor do
// not count as fresh because of another vendor.
func TestLastCollectionIsOldestOfVendors(t *testing.T) {
	one, two := &singleSource{uuid: "ONE-0"}, &singleSource{uuid: "TWO-0"}
	f := setupTwoVendors(t, one, two)
	clock := time.Unix(1_700_000_000, 0)
	f.cfg.Now = func() time.Time { return clock }
	f.collect(t)
	clock = clock.Add(20 * time.Second)
	one.err = errors.New("driver unloaded")
	families, _ := f.collect(t)
	if got := value(t, families, "plimsoll_exporter_last_collection_timestamp_seconds", "node", "node-1"); got != 1_700_000_000 {
		t.Errorf("the last collection is of %f", got)
	}
	if f.Healthy() == nil {
		t.Error("healthy although a vendor was not collected for 20 s")
	}
}

func TestUnavailableSourceIsReported(t *testing.T) {
	one, two := &singleSource{err: errors.New("no library")}, &singleSource{uuid: "TWO-0"}
	f := setupTwoVendors(t, one, two)
	families, _ := f.collect(t)
	if value(t, families, "plimsoll_exporter_source_up", "source", "one") != 0 || f.Healthy() != nil {
		t.Errorf("%v", f.Healthy())
	}
	two.err = errors.New("no chips")
	f = setupTwoVendors(t, one, two)
	err := f.Collect(t.Context())
	if err == nil || err.Error() != "one: no library\ntwo: no chips" {
		t.Errorf("without any source: %v", err)
	}
	if f.Healthy() == nil {
		t.Error("healthy without any source")
	}
	families, _ = f.scrape(t)
	if value(t, families, "plimsoll_exporter_source_up", "source", "two") != 0 {
		t.Error("source_up is not 0 without any source")
	}
	one.err, one.uuid = nil, "ONE-0"
	families, _ = f.collect(t)
	if value(t, families, "plimsoll_exporter_source_up", "source", "one") != 1 || f.Healthy() != nil {
		t.Error("source_up is not 1 after the source appeared")
	}
}

func TestNextPauseBacksOffForUnavailableSource(t *testing.T) {
	var got []time.Duration
	last := 10 * time.Second
	for range 4 {
		last = nextPause(10*time.Second, last, true)
		got = append(got, last)
	}
	if diff := cmp.Diff([]time.Duration{20 * time.Second, 40 * time.Second, time.Minute, time.Minute}, got); diff != "" {
		t.Error(diff)
	}
	if got := nextPause(2*time.Minute, 2*time.Minute, true); got != 2*time.Minute {
		t.Errorf("shorter than the interval: %s", got)
	}
	if got := nextPause(10*time.Second, time.Minute, false); got != 10*time.Second {
		t.Errorf("pause after an unloaded driver: %s", got)
	}
}

// The kubelet is queried once in a collection, also for several vendors.
func TestKubeletIsQueriedOncePerNode(t *testing.T) {
	f := setup(t)
	c := New(f.cfg, f.pods, NamedSource{"a", &singleSource{uuid: uuid(20)}}, NamedSource{"b", &singleSource{uuid: uuid(21)}}, NamedSource{"c", &singleSource{uuid: uuid(22)}})
	for range 3 {
		if err := c.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.kubelet.lists.Load(); got != 3 {
		t.Errorf("%d queries in three collections", got)
	}
	c.cfg.Interval = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	collections := func() (n int) {
		for _, v := range c.vendors {
			s := v.Source.(*singleSource)
			s.mu.Lock()
			n += s.lists
			s.mu.Unlock()
		}
		return n
	}
	for collections() < 3*3+3*10 {
		runtime.Gosched()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if queries := int(f.kubelet.lists.Load()) - 3; queries > collections()/2 {
		t.Errorf("%d queries in %d collections of three vendors", queries, collections())
	}
}

// A source that needs a new process ends Run, also for the other vendors.
func TestRunEndsIfSourceNeedsRestart(t *testing.T) {
	f := setup(t)
	broken := &singleSource{uuid: uuid(20), err: fmt.Errorf("another driver: %w", device.ErrRestart)}
	c := New(f.cfg, f.pods, NamedSource{"a", broken}, NamedSource{"b", &singleSource{uuid: uuid(21)}})
	if err := c.Run(t.Context()); !errors.Is(err, device.ErrRestart) || !strings.HasPrefix(err.Error(), "a: another driver") {
		t.Errorf("Run returns %v", err)
	}
}

package collector

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// single is a source of one device whose listing a test can stall or fail.
type single struct {
	mu    sync.Mutex
	uuid  string
	stall chan struct{}
	err   error
	lists int
}

func (s *single) Devices(context.Context) ([]device.Device, error) {
	s.mu.Lock()
	s.lists++
	stall := s.stall
	s.mu.Unlock()
	if stall != nil {
		<-stall
	}
	if s.err != nil {
		return nil, s.err
	}
	return []device.Device{{UUID: s.uuid, Minor: s.uuid, Model: "m"}}, nil
}

func (s *single) Read(context.Context, device.Device) (device.Reading, error) {
	r := device.Reading{Time: time.Now()}
	r.Set(device.GPUUtil, float64(s.lists))
	return r, nil
}

func (s *single) set(stall chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall = stall
}
func (s *single) XIDs() []device.XID { return nil }
func (s *single) Close() error       { return nil }

// auto collects from two sources.
func auto(t *testing.T, one, two device.Source) *fixture {
	t.Helper()
	f := setup(t)
	f.Collector = NewAuto(Config{Node: "node-1", Interval: time.Second, Deadline: 5 * time.Millisecond, Log: slog.New(slog.DiscardHandler)},
		f.pods, Named{"one", one}, Named{"two", two})
	return f
}

func TestOneVendorsStallCostsTheOtherNothing(t *testing.T) {
	one, two := &single{uuid: "ONE-0"}, &single{uuid: "TWO-0"}
	f := auto(t, one, two)
	f.collect(t)
	release := make(chan struct{})
	one.set(release)
	if err := f.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	families, text := f.scrape(t)
	if got := value(t, families, "DCGM_FI_DEV_GPU_UTIL", "UUID", "TWO-0"); got != 2 {
		t.Errorf("the other vendor's value is that of collection %g:\n%s", got, text)
	}
	if got := value(t, families, "DCGM_FI_DEV_GPU_UTIL", "UUID", "ONE-0"); got != 1 {
		t.Errorf("the stalled vendor's value is that of collection %g", got)
	}
	if value(t, families, "plimsoll_exporter_source_up", "source", "one") != 0 || value(t, families, "plimsoll_exporter_source_up", "source", "two") != 1 {
		t.Errorf("which source does not answer is not told:\n%s", text)
	}
	if f.Healthy() == nil {
		t.Error("healthy with a driver that does not answer")
	}
	one.set(nil)
	close(release)
	f.collect(t)
	if err := f.Healthy(); err != nil {
		t.Error(err)
	}
}

// The rules trust a node by its oldest collection: what one vendor told long ago
// must not pass for fresh because the other's is.
func TestTheNodesLastCollectionIsTheOldestOfItsVendors(t *testing.T) {
	one, two := &single{uuid: "ONE-0"}, &single{uuid: "TWO-0"}
	f := auto(t, one, two)
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

func TestASourceThatIsNotThereIsToldAndCostsNothing(t *testing.T) {
	one, two := &single{err: errors.New("no library")}, &single{uuid: "TWO-0"}
	f := auto(t, one, two)
	families, _ := f.collect(t)
	if value(t, families, "plimsoll_exporter_source_up", "source", "one") != 0 || f.Healthy() != nil {
		t.Errorf("%v", f.Healthy())
	}
	two.err = errors.New("no chips")
	f = auto(t, one, two)
	err := f.Collect(t.Context())
	if err == nil || err.Error() != "one: no library\ntwo: no chips" {
		t.Errorf("with neither: %v", err)
	}
	if f.Healthy() == nil {
		t.Error("healthy with neither")
	}
	families, _ = f.scrape(t)
	if value(t, families, "plimsoll_exporter_source_up", "source", "two") != 0 {
		t.Error("with neither, it is not told")
	}
	one.err, one.uuid = nil, "ONE-0"
	families, _ = f.collect(t)
	if value(t, families, "plimsoll_exporter_source_up", "source", "one") != 1 || f.Healthy() != nil {
		t.Error("one came, and nobody noticed")
	}
}

func TestASourceThatWasNeverThereIsLookedForLessOften(t *testing.T) {
	var got []time.Duration
	last := 10 * time.Second
	for range 4 {
		last = pause(10*time.Second, last, true)
		got = append(got, last)
	}
	if diff := cmp.Diff([]time.Duration{20 * time.Second, 40 * time.Second, time.Minute, time.Minute}, got); diff != "" {
		t.Error(diff)
	}
	if got := pause(2*time.Minute, 2*time.Minute, true); got != 2*time.Minute {
		t.Errorf("more often than devices that are there: %s", got)
	}
	if got := pause(10*time.Second, time.Minute, false); got != 10*time.Second {
		t.Errorf("a driver that was unloaded is looked for after %s", got)
	}
}

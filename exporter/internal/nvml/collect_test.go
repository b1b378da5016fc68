package nvml

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// exporter is a collector for the fake with a clock set by the test.
type exporter struct {
	*fake
	*collector.Collector
	handler http.Handler
	clock   time.Time
}

func (f *fake) exporter(t *testing.T, deadline time.Duration) *exporter {
	t.Helper()
	s := f.open()
	e := &exporter{fake: f, clock: time.Now(), Collector: newCollector(t, s, deadline)}
	s.now = func() time.Time { return e.clock }
	e.handler = e.Handler()
	return e
}

// newCollector returns a collector for a source, without a kubelet.
func newCollector(t *testing.T, s *Source, deadline time.Duration) *collector.Collector {
	t.Helper()
	pods, err := podmap.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return collector.New(collector.Config{Node: "n", Interval: time.Second, Deadline: deadline, Log: slog.New(slog.DiscardHandler)}, pods, collector.NamedSource{Source: s})
}

func (e *exporter) tick(t *testing.T) {
	t.Helper()
	e.clock = e.clock.Add(time.Second)
	if err := e.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (e *exporter) scrape() string {
	response := httptest.NewRecorder()
	e.handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return response.Body.String()
}

// Limits of the library calls per collection. Each XID adds a call, and the first reading of
// a device with GPM adds two.
const (
	callsPerDevice   = 31 // including 1 for events
	callsPerInstance = 11 // including 1 for the memory and 2 for GPM
	callsPerTick     = 1  // device count
)

func TestCallsPerCollectionAndScrape(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	e := f.exporter(t, time.Minute)
	e.tick(t)
	for range 3 {
		f.addXID(4, 31)
		before := f.get(wordCalls)
		e.tick(t)
		if calls := f.get(wordCalls) - before; calls > 8*callsPerDevice+callsPerTick+1 {
			t.Errorf("a collection of eight devices makes %d calls", calls)
		}
	}
	before := f.get(wordCalls)
	for range 10 {
		if text := e.scrape(); strings.Count(text, "\nDCGM_FI_PROF_PIPE_TENSOR_ACTIVE{") != 8 {
			t.Fatalf("tensor core metrics of eight devices are missing in\n%s", text)
		}
	}
	if calls := f.get(wordCalls) - before; calls != 0 {
		t.Errorf("ten scrapes make %d calls, want 0", calls)
	}
}

// Ten clients scrape while a collection waits for a hung call.
func TestScrapesDoNotWaitForCalls(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	for i := range 8 {
		var instances []fakeInstance
		for gi := range uint64(7) {
			instances = append(instances, fakeInstance{1, 1, 10, gi + 1, 0})
		}
		f.partition(i, 0, instances...)
	}
	e := f.exporter(t, time.Minute)
	e.tick(t)
	before := f.get(wordCalls)
	f.setDevice(0, devState, stateHung)
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		e.tick(t)
	}()
	var clients sync.WaitGroup
	for range 10 {
		clients.Go(func() {
			for range 3 {
				if n := strings.Count(e.scrape(), "\"} "); n < 2240 {
					t.Errorf("a scrape has only %d series", n)
				}
			}
		})
	}
	clients.Wait()
	select {
	case <-collected:
		t.Error("the collection did not wait for the hung device")
	default:
	}
	f.unstall()
	<-collected
	if calls := f.get(wordCalls) - before; calls > 8*callsPerDevice+8*7*callsPerInstance+callsPerTick {
		t.Errorf("a collection of eight devices and 56 instances makes %d calls", calls)
	}
}

// Of eight devices, a device hangs and a device is lost. The collection ends at its deadline
// with fresh values of the other six.
func TestHungAndLostDevicesDoNotAffectOthers(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	e := f.exporter(t, 200*time.Millisecond)
	e.tick(t)
	e.tick(t)
	f.setDevice(1, devState, stateHung)
	f.setDevice(6, devState, stateLost)
	f.addXID(6, 79)
	f.setDevice(0, devGPM, 10)
	e.tick(t)
	text := e.scrape()
	sample := func(i int) string {
		return fmt.Sprintf(`plimsoll_device_last_sample_timestamp_seconds{node="n",uuid="%s",gpu="%d",model="NVIDIA-H100-80GB-HBM3"} %g`, f.uuid(i), i, float64(e.clock.UnixMilli())/1000)
	}
	for i := range 8 {
		gauges := strings.Count(text, fmt.Sprintf("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"%d\"", i))
		isFresh := strings.Contains(text, sample(i))
		if want := i != 1 && i != 6; isFresh != want || (gauges == 1) != want {
			t.Errorf("device %d: fresh %t, want %t; %d temperatures", i, isFresh, want, gauges)
		}
	}
	for _, line := range []string{
		`plimsoll_device_hung{node="n",uuid="` + f.uuid(1) + `",gpu="1",model="NVIDIA-H100-80GB-HBM3"} 1`,
		`plimsoll_device_lost{node="n",uuid="` + f.uuid(6) + `",gpu="6",model="NVIDIA-H100-80GB-HBM3"} 1`,
		`plimsoll_xid_total{node="n",uuid="` + f.uuid(6) + `",gpu="6",model="NVIDIA-H100-80GB-HBM3",xid="79",severity="critical"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	before := f.deviceWord(1, devCalls)
	for range 3 {
		e.tick(t)
	}
	if calls := f.deviceWord(1, devCalls) - before; calls != 0 || f.get(wordStalled) != 1 {
		t.Errorf("%d further calls of the hung device, want 0; %d calls hang, want 1", calls, f.get(wordStalled))
	}
	f.unstall()
	for strings.Contains(e.scrape(), `plimsoll_device_hung{node="n",uuid="`+f.uuid(1)+`",gpu="1",model="NVIDIA-H100-80GB-HBM3"} 1`) {
		e.tick(t)
	}
	if !strings.Contains(e.scrape(), sample(1)) {
		t.Error("the recovered device has no fresh values")
	}
}

// If another process holds the driver's lock, every call blocks. The devices stay exported and the stall is
// reported, but no measurement: the devices were not read.
func TestStalledDriverKeepsDevices(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	e := f.exporter(t, 100*time.Millisecond)
	for i := range 7 {
		f.setDevice(i+1, devAbsent, 1) // a single device can be read within the deadline
	}
	e.tick(t)
	f.set(wordStallCount, 1)
	if err := e.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "the driver does not") {
		t.Errorf("collecting from a stalled driver: got error %v", err)
	}
	if text := e.scrape(); !strings.Contains(text, "\nplimsoll_exporter_driver_stalled{node=\"n\"} 1\n") || !strings.Contains(text, "\nplimsoll_device_lost{") {
		t.Errorf("the stall or the devices are missing in\n%s", text)
	} else if strings.Contains(text, "\nDCGM_FI_DEV_GPU_TEMP{") {
		t.Errorf("an old temperature is exported in\n%s", text)
	}
	if e.Healthy() == nil {
		t.Error("Healthy returns no error although the driver is stalled")
	}
	f.unstall()
	for e.Healthy() != nil {
		e.tick(t)
	}
	if text := e.scrape(); !strings.Contains(text, "\nplimsoll_exporter_driver_stalled{node=\"n\"} 0\n") {
		t.Errorf("the driver is still reported as stalled in\n%s", text)
	}
}

// A driver with slow calls delays the values. Its devices are not reported as hung.
func TestSlowCallsDoNotHangDevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.set(wordCount, 1)
	e := f.exporter(t, 500*time.Millisecond) // shorter than a reading, longer than each call
	e.tick(t)
	f.set(wordLatency, 50_000)
	e.tick(t)
	text := e.scrape()
	if regexp.MustCompile(`plimsoll_device_(lost|hung|failed)\{[^}]*\} 1\n`).MatchString(text) {
		t.Errorf("a device is reported as lost, hung or failed:\n%s", text)
	}
	_, after, _ := strings.Cut(text, `plimsoll_exporter_device_call_seconds{node="n",call="nvmlDeviceGetPowerUsage"} `)
	if after < "0.05" || after > "0.5" {
		t.Errorf("a call of 50 ms took %.10s", after)
	}
}

package nvml

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// exporter over the fake, whose clock the test sets.
type exporter struct {
	*fake
	*collector.Collector
	handler http.Handler
	clock   time.Time
}

func (f *fake) exporter(t *testing.T, deadline time.Duration) *exporter {
	t.Helper()
	s := f.open()
	e := &exporter{fake: f, clock: time.Now(), Collector: over(t, s, deadline)}
	s.now = func() time.Time { return e.clock }
	e.handler = e.Handler()
	return e
}

// over a source, without a kubelet.
func over(t *testing.T, s *Source, deadline time.Duration) *collector.Collector {
	t.Helper()
	pods, err := podmap.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return collector.New(collector.Config{Node: "n", Interval: time.Second, Deadline: deadline, Log: slog.New(slog.DiscardHandler)}, s, pods)
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

// What a collection may cost: callsPerDevice for each, callsPerInstance for each that
// MIG cut off it, and besides callsPerTick and one for each XID. In its first reading a
// device that tells its monitors is asked for two calls more.
const (
	callsPerDevice   = 22
	callsPerInstance = 11 // of which one is its memory, and two its monitors
	callsPerTick     = 2  // how many devices there are, and what events
)

func TestACollectionMakesABoundedNumberOfCallsAndAScrapeNone(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	e := f.exporter(t, time.Minute)
	e.tick(t)
	for range 3 {
		f.xid(4, 31)
		before := f.get(wordCalls)
		e.tick(t)
		if calls := f.get(wordCalls) - before; calls > 8*callsPerDevice+callsPerTick+1 {
			t.Errorf("%d calls for eight devices", calls)
		}
	}
	before := f.get(wordCalls)
	for range 10 {
		if text := e.scrape(); strings.Count(text, "\nDCGM_FI_PROF_PIPE_TENSOR_ACTIVE{") != 8 {
			t.Fatalf("%s", text)
		}
	}
	if calls := f.get(wordCalls) - before; calls != 0 {
		t.Errorf("ten scrapes made %d calls", calls)
	}
}

// Ten scrapers are answered while a collection waits for a call.
func TestScrapesDoNotWaitForCalls(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	for i := range 8 {
		var seven []instance
		for gi := range uint64(7) {
			seven = append(seven, instance{1, 1, 10, gi + 1, 0})
		}
		f.cut(i, 0, seven...)
	}
	e := f.exporter(t, time.Minute)
	e.tick(t)
	before := f.get(wordCalls)
	f.device(0, devState, stateHung)
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		e.tick(t)
	}()
	var scrapers sync.WaitGroup
	for range 10 {
		scrapers.Go(func() {
			for range 3 {
				if n := strings.Count(e.scrape(), "\"} "); n < 2240 {
					t.Errorf("%d series", n)
				}
			}
		})
	}
	scrapers.Wait()
	select {
	case <-collected:
		t.Error("the collection did not wait")
	default:
	}
	f.unstall()
	<-collected
	if calls := f.get(wordCalls) - before; calls > 8*callsPerDevice+8*7*callsPerInstance+callsPerTick {
		t.Errorf("%d calls for eight devices and their 56 instances", calls)
	}
}

// One hung and one lost of eight: the six others are fresh in the same collection,
// which ends while the hung one still hangs.
func TestSixOfEightAreFreshBesideAHungAndALostDevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	e := f.exporter(t, 200*time.Millisecond)
	e.tick(t)
	e.tick(t)
	f.device(1, devState, stateHung)
	f.device(6, devState, stateLost)
	f.xid(6, 79)
	f.device(0, devGPM, 10)
	e.tick(t)
	text := e.scrape()
	sample := func(i int) string {
		return fmt.Sprintf(`plimsoll_device_last_sample_timestamp_seconds{node="n",uuid="%s",gpu="%d",model="NVIDIA-H100-80GB-HBM3"} %g`, f.uuid(i), i, float64(e.clock.UnixMilli())/1000)
	}
	for i := range 8 {
		gauges := strings.Count(text, fmt.Sprintf("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"%d\"", i))
		fresh := strings.Contains(text, sample(i))
		if want := i != 1 && i != 6; fresh != want || (gauges == 1) != want {
			t.Errorf("device %d: fresh %t, %d temperatures", i, fresh, gauges)
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
	asked := f.deviceWord(1, devCalls)
	for range 3 {
		e.tick(t)
	}
	if again := f.deviceWord(1, devCalls) - asked; again != 0 || f.get(wordStalled) != 1 {
		t.Errorf("the hung device was called %d times more, and %d calls hang", again, f.get(wordStalled))
	}
	f.unstall()
	for strings.Contains(e.scrape(), `plimsoll_device_hung{node="n",uuid="`+f.uuid(1)+`",gpu="1",model="NVIDIA-H100-80GB-HBM3"} 1`) {
		e.tick(t)
	}
	if !strings.Contains(e.scrape(), sample(1)) {
		t.Error("it answers again and is not fresh")
	}
}

// A driver whose lock is held answers no call: what was read stands, and is told to
// be old.
func TestADriverWhoseLockIsHeld(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	e := f.exporter(t, 100*time.Millisecond)
	for i := range 7 {
		f.device(i+1, devAbsent, 1) // one device, so that it can be read within the deadline
	}
	e.tick(t)
	f.set(wordStallCount, 1)
	if err := e.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "the driver does not respond") {
		t.Errorf("%v", err)
	}
	if text := e.scrape(); !strings.Contains(text, "\nplimsoll_exporter_driver_stalled{node=\"n\"} 1\n") || !strings.Contains(text, "\nDCGM_FI_DEV_GPU_TEMP{") {
		t.Errorf("%s", text)
	}
	if e.Healthy() == nil {
		t.Error("healthy with a driver that does not answer")
	}
	f.unstall()
	for e.Healthy() != nil {
		e.tick(t)
	}
	if text := e.scrape(); !strings.Contains(text, "\nplimsoll_exporter_driver_stalled{node=\"n\"} 0\n") {
		t.Errorf("%s", text)
	}
}

// A driver that is slow in everything costs freshness, not the devices.
func TestSlowCallsHangNoDevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.set(wordCount, 1)
	e := f.exporter(t, 500*time.Millisecond) // which the reading takes longer than, and no call
	e.tick(t)
	f.set(wordLatency, 50_000)
	e.tick(t)
	text := e.scrape()
	if strings.Contains(text, "model=\"NVIDIA-H100-80GB-HBM3\"} 1\n") {
		t.Errorf("a device is lost, hung or failed:\n%s", text)
	}
	_, after, _ := strings.Cut(text, `plimsoll_exporter_device_call_seconds{node="n",call="nvmlDeviceGetPowerUsage"} `)
	if after < "0.05" || after > "0.5" {
		t.Errorf("a call of 50 ms took %.10s", after)
	}
}

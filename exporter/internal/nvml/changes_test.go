package nvml

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func (f *fake) uuids(devices ...int) (uuids []string) {
	for _, i := range devices {
		uuids = append(uuids, f.uuid(i))
	}
	return uuids
}

func uuidsOf(devices []device.Device) (uuids []string) {
	for _, d := range devices {
		uuids = append(uuids, d.UUID)
	}
	slices.Sort(uuids)
	return uuids
}

// A dead card is not forgotten because the exporter was started anew.
func TestADeviceThatWasLostBeforeTheStart(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.device(3, devState, stateLost)
	e := f.exporter(t, time.Minute)
	for silent := range 2 {
		silent = 1 - silent // at first it is lost, then it is back
		e.tick(t)
		text := e.scrape()
		if n := strings.Count(text, "\nDCGM_FI_DEV_GPU_TEMP{"); n != 8-silent {
			t.Errorf("%d temperatures, want %d", n, 8-silent)
		}
		if line := fmt.Sprintf("\nplimsoll_exporter_undescribed_devices{node=\"n\"} %d\n", silent); !strings.Contains(text, line) {
			t.Errorf("no%s in\n%s", line, text)
		}
		f.device(3, devState, stateOK)
	}
}

func TestADeviceThatIsReplaced(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := list(t, s)
	f.device(3, devState, stateLost)
	if _, err := s.Read(context.Background(), devices[3]); !errors.Is(err, device.ErrLost) {
		t.Fatal(err)
	}
	if n := len(list(t, s)); n != 8 {
		t.Fatalf("%d devices are listed while one is lost", n)
	}
	old := f.uuid(3)
	f.device(3, devReplaced, 1)
	f.device(3, devSerial, 0xbeef)
	f.device(3, devState, stateOK)
	f.device(5, devState, stateHung)
	stalled := make(chan error, 1)
	go func() { _, err := s.Read(context.Background(), devices[5]); stalled <- err }()
	for f.get(wordStalled) == 0 {
		runtime.Gosched()
	}
	if _, err := s.Read(context.Background(), devices[3]); !errors.Is(err, device.ErrLost) {
		t.Fatalf("the one that was replaced: %v", err)
	}
	now := list(t, s)
	if got, want := uuidsOf(now), f.uuids(0, 1, 2, 4, 5, 6, 7, 3); !slices.Equal(got, want) {
		t.Fatalf("the devices are %q, want %q", got, want)
	}
	want(t, read(t, s, now[3]), device.GPUTemp, 43)
	if _, err := s.Read(context.Background(), device.Device{UUID: old}); err == nil {
		t.Error("the old one answers")
	}
	f.unstall()
	if err := <-stalled; err != nil {
		t.Error(err)
	}
}

// The library counts fewer, and its indexes mean others. While one hangs nobody is
// asked who they are.
func TestADeviceThatIsTakenAway(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	devices := list(t, s)
	f.device(5, devState, stateHung)
	stalled := make(chan error, 1)
	go func() { _, err := s.Read(context.Background(), devices[5]); stalled <- err }()
	for f.get(wordStalled) == 0 {
		runtime.Gosched()
	}
	f.device(3, devAbsent, 1)
	asked := f.get(wordCalls)
	if n := len(list(t, s)); n != 8 || f.get(wordCalls)-asked != 1 {
		t.Errorf("%d devices and %d calls while one hangs", n, f.get(wordCalls)-asked)
	}
	f.unstall()
	if err := <-stalled; err != nil {
		t.Fatal(err)
	}
	now := list(t, s)
	if got, want := uuidsOf(now), f.uuids(0, 1, 2, 4, 5, 6, 7); !slices.Equal(got, want) {
		t.Fatalf("the devices are %q, want %q", got, want)
	}
	want(t, read(t, s, now[3]), device.GPUTemp, 44)
	f.device(3, devAbsent, 0)
	if n := len(list(t, s)); n != 8 {
		t.Errorf("%d devices when it is back", n)
	}
}

// A device that hung before the exporter came keeps nobody from being listed, is
// waited for once, and is listed when it answers.
func TestADeviceThatHangsFromTheStart(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.device(2, devState, stateHung)
	s := f.open()
	s.courtesy = 200 * time.Millisecond
	if got, want := uuidsOf(list(t, s)), f.uuids(0, 1, 3, 4, 5, 6, 7); !slices.Equal(got, want) {
		t.Fatalf("the devices are %q, want %q", got, want)
	}
	if n := s.Undescribed(); n != 1 {
		t.Errorf("%d devices have not said what they are, want 1", n)
	}
	s.courtesy = time.Hour
	calls := f.deviceWord(2, devCalls)
	if n := len(list(t, s)); n != 7 || f.deviceWord(2, devCalls) != calls {
		t.Errorf("%d devices; it was called again while it hangs", n)
	}
	f.unstall()
	for len(list(t, s)) != 8 {
		runtime.Gosched()
	}
	if got, want := uuidsOf(list(t, s)), f.uuids(0, 1, 2, 3, 4, 5, 6, 7); !slices.Equal(got, want) || s.Undescribed() != 0 {
		t.Errorf("the devices are %q, want %q", got, want)
	}
}

// When none of several answers, it is the driver that does not.
func TestADriverThatHangsFromTheStart(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	for i := range 8 {
		f.device(i, devState, stateHung)
	}
	s := f.open()
	s.courtesy = 100 * time.Millisecond
	if _, err := s.Devices(context.Background()); err == nil || !strings.Contains(err.Error(), "none of 8 devices") {
		t.Fatalf("%v", err)
	}
	f.unstall()
	for {
		if devices, err := s.Devices(context.Background()); err == nil && len(devices) == 8 {
			return
		}
		runtime.Gosched()
	}
}

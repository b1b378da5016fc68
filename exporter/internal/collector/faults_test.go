package collector

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// logTo makes the fixture log to the returned buffer.
func (f *fixture) logTo() *bytes.Buffer {
	var log bytes.Buffer
	f.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	return &log
}

// requireLogged checks that the log since the last call contains exactly these texts, in
// one line each.
func requireLogged(t *testing.T, log *bytes.Buffer, want ...string) {
	t.Helper()
	text := log.String()
	log.Reset()
	if strings.Count(text, "\n") != len(want) {
		t.Errorf("%d lines are logged, want %d:\n%s", strings.Count(text, "\n"), len(want), text)
	}
	for _, part := range want {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not logged:\n%s", part, text)
		}
	}
}

func TestDeviceFaultsAreLoggedOnChange(t *testing.T) {
	f := setup(t)
	log := f.logTo()
	collect := func() {
		t.Helper()
		f.collect(t)
	}
	collect()
	requireLogged(t, log)
	f.source.lost[uuid(1)] = true
	collect()
	requireLogged(t, log, "fell off the bus")
	collect()
	requireLogged(t, log)
	f.source.lost[uuid(1)] = false
	f.source.fails = map[string]bool{uuid(2): true}
	collect()
	requireLogged(t, log, "device can be read again", "GPU requires reset")
	collect()
	requireLogged(t, log)
}

func TestFailingCallsAreLoggedOnChange(t *testing.T) {
	f := setup(t)
	log := f.logTo()
	var err error
	f.source.override = func(d device.Device, r *device.Reading) {
		r.Set(device.GPUUtil, 1)
		r.Calls = []device.Call{{Name: "nvmlA"}, {Name: "nvmlB"}}
		if d.Index == 3 {
			r.Calls[1].Err = err
		}
	}
	families, _ := f.collect(t)
	requireLogged(t, log)
	for _, call := range []string{"nvmlA", "nvmlB"} {
		if got := value(t, families, "plimsoll_exporter_call_errors_total", "call", call); got != 0 {
			t.Errorf("%g failures of %s before the first", got, call)
		}
	}
	err = errors.New("Unknown Error")
	f.collect(t)
	requireLogged(t, log, "call=nvmlB")
	families, _ = f.collect(t)
	requireLogged(t, log)
	if got := value(t, families, "plimsoll_exporter_call_errors_total", "call", "nvmlB"); got != 2 {
		t.Errorf("%g failures", got)
	}
	if got := value(t, families, "plimsoll_exporter_call_errors_total", "call", "nvmlA"); got != 0 {
		t.Errorf("%g failures of a call that succeeds", got)
	}
	err = device.ErrDenied
	families, _ = f.collect(t)
	requireLogged(t, log, "denies")
	if value(t, families, "plimsoll_exporter_call_denied", "call", "nvmlB") != 1 {
		t.Error("the denied call is not reported")
	}
	err = nil
	families, _ = f.collect(t)
	requireLogged(t, log, "succeeds again")
	if families["plimsoll_exporter_call_denied"] != nil || value(t, families, "plimsoll_exporter_call_errors_total", "call", "nvmlB") != 3 {
		t.Error("the call still counts as denied, or the failures are lost")
	}
}

func TestKubeletFaultIsLoggedReportedAndShown(t *testing.T) {
	f := setup(t)
	log := f.logTo()
	health := func() string {
		response := httptest.NewRecorder()
		f.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/health", nil))
		if response.Code != http.StatusOK {
			t.Errorf("/health returns %d: the devices can still be read", response.Code)
		}
		return response.Body.String()
	}
	families, _ := f.collect(t)
	requireLogged(t, log)
	if value(t, families, "plimsoll_exporter_kubelet_up") != 1 || health() != "OK\n" {
		t.Errorf("the kubelet is reported as failing: %s", health())
	}
	f.kubelet.failAllocatable = true
	families, _ = f.collect(t)
	requireLogged(t, log, "cannot read the allocation of devices from the kubelet")
	if value(t, families, "plimsoll_exporter_kubelet_up") != 0 || !strings.Contains(health(), "degraded: the kubelet") {
		t.Errorf("the failing kubelet is not reported: %s", health())
	}
	f.collect(t)
	requireLogged(t, log)
	f.kubelet.failAllocatable = false
	f.collect(t)
	requireLogged(t, log, "the kubelet reports the allocation of devices again")
}

func TestFailedCollectionsAreCounted(t *testing.T) {
	f := setup(t)
	f.vendors[0].Name = "nvml"
	f.collect(t)
	f.source.err = errors.New("Driver Not Loaded")
	for range 2 {
		if err := f.Collect(t.Context()); err == nil {
			t.Error("no error")
		}
	}
	families, _ := f.scrape(t)
	if got := value(t, families, "plimsoll_exporter_collection_errors_total", "source", "nvml"); got != 2 {
		t.Errorf("%g errors, want 2", got)
	}
	if got := value(t, families, "plimsoll_exporter_collection_seconds", "source", "nvml"); got <= 0 {
		t.Errorf("the last collection took %g s", got)
	}
}

// twins is a source that lists a device twice, as a library can whose devices have the same UUID.
type twins struct{ *fakeSource }

func (s twins) Devices(ctx context.Context) ([]device.Device, error) {
	devices, err := s.fakeSource.Devices(ctx)
	return append(devices, devices[0]), err
}

func TestDuplicateSeriesAreLoggedOnChange(t *testing.T) {
	f := setup(t)
	log := f.logTo()
	f.vendors[0].Source = twins{f.source}
	f.collect(t)
	requireLogged(t, log, "dropped duplicate series")
	f.collect(t)
	requireLogged(t, log)
	f.vendors[0].Source = f.source
	f.collect(t)
	f.vendors[0].Source = twins{f.source}
	f.collect(t)
	requireLogged(t, log, "dropped duplicate series")
}

package collector

import (
	"context"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// hookedSource calls during while it reads a device.
type hookedSource struct {
	*fakeSource
	during func()
}

func (s hookedSource) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	s.during()
	return s.fakeSource.Read(ctx, d)
}

const sampleTime = "plimsoll_exporter_last_collection_timestamp_seconds"

// A pod takes a device while the devices are read, which can take seconds. The holders are those of
// before, so the sample must not claim to be later: the gate would take the pod for one that the
// sample contains.
func TestSampleTimeIsNotAfterQueryOfHolders(t *testing.T) {
	f := setup(t)
	allocatedAt := time.Time{}
	f.vendors[0].Source = hookedSource{f.source, func() {
		f.kubelet.mu.Lock()
		defer f.kubelet.mu.Unlock()
		f.kubelet.holdings["ml/late/main"] = []string{uuid(0)}
		allocatedAt = time.Now()
	}}
	f.cfg.Now = func() time.Time { return time.Now().Add(time.Minute) } // the readings end a minute later
	families, _ := f.collect(t)
	if free := value(t, families, "plimsoll_node_devices", "state", "free"); free != 8 {
		t.Fatalf("%g devices are free, so the collection contains the pod", free)
	}
	if got := value(t, families, sampleTime); got > unixSeconds(allocatedAt) {
		t.Errorf("the sample is %.3f s later than a pod that it does not contain", got-unixSeconds(allocatedAt))
	}
	if f.vendors[0].at.Before(allocatedAt) {
		t.Error("the collection does not end after the readings, so the exporter looks unhealthy earlier")
	}
}

// Without the kubelet nothing counts as free, and the readings alone have a time.
func TestSampleTimeWithoutHolders(t *testing.T) {
	f := setup(t)
	f.kubelet.server.Stop()
	f.cfg.Now = func() time.Time { return time.Unix(1_700_000_000, 0) }
	families, _ := f.collect(t)
	if got := value(t, families, sampleTime); got != 1_700_000_000 {
		t.Errorf("the sample time is %f", got)
	}
}

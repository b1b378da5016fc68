//go:build soak

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
)

const (
	soakDevices, soakParts = 8, 7
	soakFor                = 130 * time.Second
	soakLimit              = 40 << 20 // bytes resident
)

// setInstances gives a device MIG instances. See mig.c for the meaning of each word.
func (d *driver) setInstances(device, parts int) {
	base := driverDevices + 16*driverDeviceWords + device*80
	d.set(base, 1)
	for n := range soakParts {
		for word, v := range []uint64{min(1, uint64(max(0, parts-n))), 1, 9840, uint64(n + 1), 0, 100 << 20, 10 << 20, 9840 << 20, 10, 19, uint64(n)} {
			d.set(base+1+n*11+word, v)
		}
	}
}

func instanceUUID(device, part int) string {
	return fmt.Sprintf("MIG-%08x-0000-5000-8000-%04x%04x%04x", 0xa0+device, device, part+1, 0)
}

// restartingKubelet is a kubelet that restarts with the same socket.
type restartingKubelet struct {
	*fake.Kubelet
	socket string
	server *grpc.Server
}

func (k *restartingKubelet) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("unix", k.socket)
	if err != nil {
		t.Fatal(err)
	}
	k.server = grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(k.server, k)
	go func() { _ = k.server.Serve(listener) }() // ends with Stop
}

// sample is the resource usage of the process.
type sample struct{ resident, descriptors, goroutines int }

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

func (p *process) sample() sample {
	p.t.Helper()
	proc := fmt.Sprintf("/proc/%d/", p.Process.Pid)
	statm, err := os.ReadFile(proc + "statm")
	if err != nil {
		p.t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		p.t.Fatal(err)
	}
	descriptors, err := os.ReadDir(proc + "fd")
	if err != nil {
		p.t.Fatal(err)
	}
	_, text := p.get("/metrics")
	found := goroutines.FindStringSubmatch(text)
	if found == nil {
		p.t.Fatalf("no go_goroutines in\n%.400s", text)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		p.t.Fatal(err)
	}
	return sample{pages * os.Getpagesize(), len(descriptors), n}
}

// TestSoakExporter runs the shipped binary for as many collections as in ten hours with the
// default interval. 10,000 pods come and go, the kubelet restarts, the driver is reloaded,
// MIG is reconfigured, and ten scrapers run. The resource usage must not grow.
func TestSoakExporter(t *testing.T) {
	binary := buildExporter(t)
	d := newDriver(t, soakDevices)
	k := &restartingKubelet{Kubelet: fake.Start(t), socket: filepath.Join(t.TempDir(), "kubelet.sock")}
	var all []string
	for i := range soakDevices {
		d.setInstances(i, soakParts)
		for n := range soakParts {
			all = append(all, instanceUUID(i, n))
		}
	}
	k.Allocatable("nvidia.com/mig-1g.10gb", all...)
	k.start(t)
	defer func() { k.server.Stop() }()
	cmd := d.command("--pod-resources-kubelet-socket="+k.socket, "--enable-exporter-metrics")
	cmd.Path = binary
	p := start(t, cmd)
	p.waitFor("/metrics", http.StatusOK, "DCGM_FI_DEV_FB_USED{")

	ctx, stop := context.WithTimeout(t.Context(), soakFor)
	defer stop()
	var background sync.WaitGroup
	var scrapes, pods atomic.Int64
	for range 10 {
		background.Go(func() { every(ctx, 100*time.Millisecond, func(int) { p.scrape(&scrapes) }) })
	}
	background.Go(func() {
		random := rand.New(rand.NewPCG(1, 1))
		every(ctx, 10*time.Millisecond, func(n int) {
			k.Release(fmt.Sprintf("team-%d/worker-%d/main", (n-40)%7, n-40))
			k.Hold(fmt.Sprintf("team-%d/worker-%d/main", n%7, n), "nvidia.com/mig-1g.10gb", all[random.IntN(len(all))])
			pods.Add(1)
		})
	})
	background.Go(func() {
		every(ctx, 4*time.Second, func(n int) {
			switch n % 3 {
			case 0:
				k.server.Stop()
				k.start(t)
			case 1:
				d.set(driverInitResult, 9)
				d.set(driverUnloaded, 1)
			case 2:
				d.set(driverInitResult, 0)
				d.setInstances(7, 3+n%5)
			}
		})
	})
	var samples []sample
	every(ctx, time.Second, func(int) { samples = append(samples, p.sample()) })
	background.Wait()
	d.set(driverInitResult, 0)
	p.waitFor("/health", http.StatusOK, "OK")
	requireNoGrowth(t, samples)
	t.Logf("%v: %d pods, %d scrapes, CPU of the process %v", soakFor, pods.Load(), scrapes.Load(), p.cpuTime())
}

// every calls do at each period until ctx ends.
func every(ctx context.Context, period time.Duration, do func(n int)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(n)
		}
	}
}

func (p *process) scrape(count *atomic.Int64) {
	status, text := p.get("/metrics")
	if status != http.StatusOK || !strings.Contains(text, "plimsoll_exporter_driver_stalled") {
		p.t.Errorf("a scrape returns %d", status)
	}
	count.Add(1)
}

// requireNoGrowth compares the last third of the samples with the second.
func requireNoGrowth(t *testing.T, samples []sample) {
	t.Helper()
	third := len(samples) / 3
	for resource, of := range map[string]func(sample) int{
		"bytes resident":   func(s sample) int { return s.resident },
		"file descriptors": func(s sample) int { return s.descriptors },
		"goroutines":       func(s sample) int { return s.goroutines },
	} {
		before, after, most := median(samples[third:2*third], of), median(samples[2*third:], of), 0
		for _, s := range samples {
			most = max(most, of(s))
		}
		t.Logf("%s: %d in the second third, %d in the last, %d at most", resource, before, after, most)
		if after > before+before/10+2 {
			t.Errorf("%s grow", resource)
		}
		if resource == "bytes resident" && most > soakLimit {
			t.Errorf("more than %d bytes resident", soakLimit)
		}
	}
}

func median(samples []sample, of func(sample) int) int {
	var v []int
	for _, s := range samples {
		v = append(v, of(s))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// cpuTime returns the CPU time of the process.
func (p *process) cpuTime() time.Duration {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			p.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

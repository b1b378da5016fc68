//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const (
	soakOpen  = 30              // jobs at a time
	soakGrace = 4 * time.Minute // for what is open when the last was submitted
)

// soak is one run: jobs come and go, some are deleted, evicted, preempted or lose
// their copy, while programs of the fleet die and come back.
type soak struct {
	random    *rand.Rand
	seen      *fleet.Sightings
	open      map[string]*soaked
	submitted int
	count     map[string]int
	faults    atomic.Int64
	// closed while Kueue on the hub can't tell which jobs are MultiKueue's.
	closed atomic.Bool
}

// soaked is one job that is not over.
type soaked struct {
	job fleet.Job
	// asleep until then: it was deactivated.
	asleep time.Time
}

// TestSoak submits JOBS jobs (1000) within SOAK minutes (40) under faults that
// SEED determines. No workload is lost or stuck, none runs in two places, none
// is placed where its pods can't be scheduled; TestMain checks every write.
func TestSoak(t *testing.T) {
	minutes, jobs, seed := env("SOAK", 40), int(env("JOBS", 1000)), env("SEED", uint64(time.Now().UnixNano()))
	t.Logf("SEED=%d SOAK=%d JOBS=%d", seed, minutes, jobs)
	ctx := testContext(t, time.Duration(minutes)*time.Minute+2*soakGrace)
	priorities(ctx, t)
	queue{name: "soak", hub: 44, worker: 256, checks: []string{"plimsoll", "multikueue"}, preempt: true}.make(ctx, t)
	twoOperators(ctx, t)
	seen, err := lab.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{random: rand.New(rand.NewPCG(seed, 1)), open: map[string]*soaked{}, count: map[string]int{}, seen: seen}

	faults, stop := context.WithTimeout(ctx, time.Duration(minutes)*time.Minute)
	done := make(chan error, 1)
	go func() { done <- s.fault(faults, t, rand.New(rand.NewPCG(seed, 2))) }()
	began := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for s.submitted < jobs && faults.Err() == nil {
		s.submit(ctx)
		s.disturb(ctx)
		s.rouse(ctx)
		s.collect(ctx)
		<-tick.C
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	defer s.report(t, began)
	last, cancel := context.WithTimeout(ctx, soakGrace)
	defer cancel()
	await(last, t, "every job to be over", func(context.Context) error {
		s.rouse(ctx)
		s.collect(ctx)
		if len(s.open) > 0 {
			return fmt.Errorf("open: %s", s.describe(ctx))
		}
		return nil
	})
}

func (s *soak) report(t *testing.T, began time.Time) {
	t.Helper()
	twice, misfits := s.seen.Twice(), s.seen.Misfits()
	t.Logf("%d jobs in %s, %d faults, %v; %d ran in two places, %d were sent where they waited longer than %s for a node", s.submitted,
		time.Since(began).Round(time.Second), s.faults.Load(), s.count, len(twice), len(misfits), fleet.UnschedulableFor)
	for _, line := range twice {
		t.Errorf("ran in two places: %s", line)
	}
	for _, line := range misfits {
		t.Errorf("did not fit: %s", line)
	}
}

func env(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// twoOperators instead of the one: one leads.
func twoOperators(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := lab.Programs().End(fleet.Operator, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"operator-a", "operator-b"} {
		if err := lab.StartReplica(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
}

// submit until enough are open.
func (s *soak) submit(ctx context.Context) {
	for len(s.open) < soakOpen && !s.closed.Load() {
		j := fleet.Job{Name: fmt.Sprintf("soak-%d", s.submitted), Model: fleet.H100, Queue: "soak", GPUs: []int{1, 1, 2, 4, 8}[s.random.IntN(5)],
			Duration: time.Duration(2+s.random.IntN(12)) * time.Second, Priority: []string{"low", "low", "low", "high"}[s.random.IntN(4)]}
		if err := lab.Submit(ctx, j); err != nil {
			s.count["submissions refused"]++
			return
		}
		s.open[j.Name] = &soaked{job: j}
		s.submitted++
	}
}

// rouse the jobs that were deactivated a while ago.
func (s *soak) rouse(ctx context.Context) {
	for name, j := range s.open {
		if !j.asleep.IsZero() && time.Now().After(j.asleep) && s.activate(ctx, name, true) == nil {
			j.asleep = time.Time{}
		}
	}
}

// disturb one of the open jobs, now and then.
func (s *soak) disturb(ctx context.Context) {
	if s.random.IntN(6) > 0 || len(s.open) == 0 {
		return
	}
	name := s.any()
	switch s.random.IntN(3) {
	case 0:
		if lab.DeleteJob(ctx, name) == nil {
			s.count["deleted"]++
			delete(s.open, name)
		}
	case 1:
		if s.open[name].asleep.IsZero() && s.activate(ctx, name, false) == nil {
			s.count["deactivated"]++
			s.open[name].asleep = time.Now().Add(2 * time.Second)
		}
	case 2:
		if cluster := s.seen.RunsOn(name); cluster != "" {
			if _, err := lab.Worker(cluster).Kubectl(ctx, "", "delete", "job/"+name, "-n", fleet.Namespace, "--wait=false"); err == nil {
				s.count["copies lost"]++
			}
		}
	}
}

// any open job, the same for the same seed and set.
func (s *soak) any() string {
	var names []string
	for i := max(0, s.submitted-4*soakOpen); i < s.submitted; i++ {
		if name := fmt.Sprintf("soak-%d", i); s.open[name] != nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		for name := range s.open {
			return name
		}
	}
	return names[s.random.IntN(len(names))]
}

// activate or deactivate a job's workload.
func (s *soak) activate(ctx context.Context, name string, active bool) error {
	wl := s.seen.Workload(name)
	if wl == nil {
		return fmt.Errorf("%s has no workload", name)
	}
	before := wl.DeepCopy()
	wl.Spec.Active = ptr.To(active)
	return lab.Hub.Client.Patch(ctx, wl, client.MergeFrom(before))
}

// collect what has finished: a user deletes it.
func (s *soak) collect(ctx context.Context) {
	for name := range s.open {
		if s.seen.Is(name, kueue.WorkloadFinished) && lab.DeleteJob(ctx, name) == nil {
			s.count["finished"]++
			delete(s.open, name)
		}
	}
}

func (s *soak) describe(ctx context.Context) string {
	var lines []string
	for name := range s.open {
		v, err := lab.View(ctx, name)
		lines = append(lines, fmt.Sprintf("%+v %v", v, err))
	}
	return strings.Join(lines, "\n")
}

// outages are what dies, and for at most how many seconds.
var outages = []struct {
	program string
	seconds int
}{
	{"operator-a", 2}, {"operator-b", 2}, {"operator-a", 2}, {"operator-b", 2},
	{"thanos-query", 30}, {"cluster1-prometheus", 15}, {"cluster2-prometheus", 15},
	{"cluster1-kube-apiserver", 10}, {"cluster2-kube-apiserver", 10}, {"cluster3-kube-apiserver", 10},
	{"hub-kueue", 3}, {"cluster2-kueue", 10}, {"hub-ocm-placement", 5},
}

// fault after fault until the context ends; then everything runs again.
func (s *soak) fault(ctx context.Context, t *testing.T, random *rand.Rand) error {
	for pause(ctx, time.Duration(3+random.IntN(9))*time.Second) {
		o := outages[random.IntN(len(outages))]
		sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[random.IntN(2)]
		down := time.Duration(1+random.IntN(o.seconds)) * time.Second
		t.Logf("fault: %s gets %s and is away for %s", o.program, sig, down)
		if err := s.outage(ctx, o.program, sig, down); err != nil {
			return err
		}
		s.faults.Add(1)
	}
	return nil
}

// outage of a program. No job is made while Kueue on the hub is away.
func (s *soak) outage(ctx context.Context, name string, sig syscall.Signal, down time.Duration) error {
	s.closed.Store(name == "hub-kueue")
	defer s.closed.Store(false)
	if err := lab.Programs().End(name, sig); err != nil {
		return err
	}
	pause(ctx, down)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	if err := lab.Programs().Restart(ctx, name); err != nil {
		return err
	}
	return fleet.Await(ctx, "Kueue to mark jobs as MultiKueue's", lab.MarksJobs)
}

// pause is how long an outage or the peace between two lasts; false = the run ends.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

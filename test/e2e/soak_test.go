//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	soakOpenJobs = 30 // at a time
	soakQuota    = 44 // GPUs
	// soakGrace is the time for open jobs to finish, after the last submission. If Kueue restarts after a
	// copy was lost, and looks at its workload before it is connected to the worker, it looks again after
	// workerLostTimeout (15 min) only.
	soakGrace = 19 * time.Minute
	// soakLongestWait bounds the time for which a job has quota but is not admitted, faults included.
	soakLongestWait = 6 * time.Minute
	// soakPatience is the time after which the user of a job whose pods never start deletes it: the cluster is slow by then.
	soakPatience = 3 * time.Minute
	// soakSampleAge is the age up to which the gate trusts samples, and the time for which a misled job is on its way.
	soakSampleAge = 2 * time.Minute
)

// soak is a run of TestSoak. It submits jobs, deactivates and deletes some of them or
// their copies, and restarts programs of the fleet.
type soak struct {
	random  *rand.Rand
	watcher *fleet.JobWatcher
	open    map[string]*openJob // by name
	// lies are the times in which the exporter of a node reported devices free that were not.
	lies      []lie
	submitted int
	grown     map[string]bool // elastic jobs that were resized
	count     map[string]int
	faults    atomic.Int64
	// paused is true while Kueue on the hub restarts: it rejects new jobs until it
	// knows the queues of MultiKueue.
	paused atomic.Bool
}

// lie of the exporter of a node; until includes the age of samples that the gate still trusts.
type lie struct {
	cluster     string
	from, until time.Time
}

// openJob is a job that has neither finished nor been deleted.
type openJob struct {
	job fleet.Job
	// activateAt is set while the job is deactivated.
	activateAt time.Time
	// deleteAt is when the user of a job whose pods never start gives it up.
	deleteAt time.Time
}

// TestSoak submits JOBS jobs (default 1000) within SOAK minutes (default 40), with
// faults that SEED determines (default random). One in ten jobs has several pods, which need
// room together, one in ten is elastic, and the pods of one in thirty never start. High priorities preempt
// low ones, and the gate holds clusters. The GPUs of one node are free, but it lacks CPU. The test fails if a job does not
// finish, waits with quota longer than soakLongestWait, runs on two clusters at once, or is placed
// on a cluster where its pods are unschedulable, unless an exporter there reported GPUs free that were not. TestMain checks all writes. What happens to the jobs is written to the file RECORD.
func TestSoak(t *testing.T) {
	minutes, jobs, seed := numberFromEnv(t, "SOAK", 40), int(numberFromEnv(t, "JOBS", 1000)), numberFromEnv(t, "SEED", uint64(time.Now().UnixNano()))
	t.Logf("SEED=%d SOAK=%d JOBS=%d", seed, minutes, jobs)
	ctx := testContext(t, time.Duration(minutes)*time.Minute+soakGrace+5*time.Minute)
	createPriorities(ctx, t)
	queue{name: "soak", hub: soakQuota, worker: 256, checks: []string{"plimsoll", "multikueue"}, preempt: true}.create(ctx, t)
	addNode(ctx, t, "cluster3", fleet.Node{Name: "cluster3-poor", Model: fleet.H100, GPUs: 8, CPU: 2})
	patchGate(ctx, t, `{"hold":{"afterSeconds":20}}`, `{"hold":null}`)
	replicas := startTwoOperators(ctx, t, "--log-level=DEBUG", "--log-format=json") // for the record
	watcher, err := lab.WatchJobs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{random: rand.New(rand.NewPCG(seed, 1)), open: map[string]*openJob{}, grown: map[string]bool{}, count: map[string]int{}, watcher: watcher}
	if path := os.Getenv("RECORD"); path != "" {
		if err := os.WriteFile(path, nil, 0o644); err != nil || !filepath.IsAbs(path) {
			t.Fatalf("RECORD=%s must be the absolute path of a file that can be written: %v", path, err)
		}
		record, err := lab.Record(ctx, soakQuota, replicas...)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := record.Write(path); err != nil {
				t.Error(err)
			}
		}()
	}

	faults, stop := context.WithTimeout(ctx, time.Duration(minutes)*time.Minute)
	done := make(chan error, 1)
	go func() { done <- s.injectFaults(faults, t, rand.New(rand.NewPCG(seed, 2))) }()
	began := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for s.submitted < jobs && faults.Err() == nil {
		s.submitJobs(ctx)
		s.disturbJob(ctx)
		s.activateJobs(ctx)
		s.deleteFinished(ctx)
		s.deleteHanging(ctx)
		<-tick.C
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	defer s.report(ctx, t, began)
	last, cancel := context.WithTimeout(ctx, soakGrace)
	defer cancel()
	await(last, t, "all jobs to finish", func(context.Context) error {
		s.activateJobs(ctx)
		s.deleteFinished(ctx)
		s.deleteHanging(ctx)
		s.deleteUnreported(ctx)
		if len(s.open) > 0 {
			return fmt.Errorf("open: %s", s.describe(ctx))
		}
		return nil
	})
}

func (s *soak) report(ctx context.Context, t *testing.T, began time.Time) {
	t.Helper()
	// Kueue resizes an elastic job on its cluster, whether it has room there or not.
	misplaced := slices.DeleteFunc(s.watcher.Misplaced(), func(m fleet.Misplacement) bool { return s.grown[m.Job] || s.isMisled(m) })
	doubleRuns, longest := s.watcher.DoubleRuns(), s.watcher.LongestWait()
	held, err := lab.Hub.Kubectl(ctx, "", "get", "events", "-n", fleet.Namespace, "--field-selector=reason=ClusterHeld", "-o", "name")
	if err != nil || held == "" {
		t.Errorf("the gate held no cluster: events %q, error %v", held, err)
	}
	s.count["clusters held"] = strings.Count(held, "\n")
	t.Logf("%d jobs in %s, %d faults, %v; %d ran on two clusters, %d were unschedulable for more than %s; the longest wait with quota was %s, of %s", s.submitted,
		time.Since(began).Round(time.Second), s.faults.Load(), s.count, len(doubleRuns), len(misplaced), fleet.UnschedulableFor, longest.Took.Round(time.Second), longest.Job)
	for _, line := range doubleRuns {
		t.Errorf("ran on two clusters: %s", line)
	}
	for _, m := range misplaced {
		t.Error(m)
	}
	if longest.Took > soakLongestWait {
		t.Errorf("%s waited %s with quota, more than %s", longest.Job, longest.Took, soakLongestWait)
	}
}

// isMisled reports whether an exporter had misled the gate to the cluster of a job.
func (s *soak) isMisled(m fleet.Misplacement) bool {
	misled := slices.ContainsFunc(s.lies, func(l lie) bool {
		return l.cluster == m.Cluster && m.Since.After(l.from) && m.Since.Before(l.until)
	})
	if misled {
		s.count["misled"]++
	}
	return misled
}

// numberFromEnv returns an environment variable as a positive number, or the default
// if the variable is not set.
func numberFromEnv(t *testing.T, name string, defaultValue uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return defaultValue
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		t.Fatalf("%s=%q must be a positive number", name, text)
	}
	return n
}

// submitJobs submits jobs until soakOpenJobs are open.
func (s *soak) submitJobs(ctx context.Context) {
	for len(s.open) < soakOpenJobs && !s.paused.Load() {
		j := s.newJob()
		if err := lab.Submit(ctx, j); err != nil {
			s.count["submissions refused"]++
			return
		}
		s.open[j.Name] = &openJob{job: j}
		if j.Pull > 0 {
			s.open[j.Name].deleteAt = time.Now().Add(soakPatience)
		}
		s.submitted++
	}
}

func (s *soak) newJob() fleet.Job {
	j := fleet.Job{Name: fmt.Sprintf("soak-%d", s.submitted), Model: fleet.H100, Queue: "soak", Pods: 1, GPUs: []int{1, 1, 2, 4, 8}[s.random.IntN(5)],
		Duration: time.Duration(2+s.random.IntN(12)) * time.Second, Priority: []string{"low", "low", "low", "high"}[s.random.IntN(4)]}
	if s.random.IntN(30) == 0 {
		j.GPUs, j.Pull = 1, time.Hour
		s.count["never start"]++
		return j
	}
	switch s.random.IntN(10) {
	case 0: // only cluster1 has two nodes with eight
		j.Pods = 2 + s.random.IntN(2)
		j.GPUs = []int{8, 4, 2}[s.random.IntN(3)] / (j.Pods - 1)
		s.count["several pods"]++
	case 1:
		j.Elastic, j.GPUs, j.Duration = true, 1, j.Duration+10*time.Second
		s.count["elastic"]++
	}
	return j
}

// activateJobs activates deactivated jobs again. A failed attempt, for example during
// a fault, is repeated in the next round.
func (s *soak) activateJobs(ctx context.Context) {
	for name, j := range s.open {
		if !j.activateAt.IsZero() && time.Now().After(j.activateAt) && s.setActive(ctx, name, true) == nil {
			j.activateAt = time.Time{}
		}
	}
}

// disturbJob deletes or deactivates an open job, deletes its copy or resizes it, in one of six
// rounds. It counts only successful attempts, because a fault may be in progress.
func (s *soak) disturbJob(ctx context.Context) {
	if s.random.IntN(6) > 0 || len(s.open) == 0 {
		return
	}
	name := s.pickJob()
	if s.open[name].job.Elastic && s.random.IntN(4) > 0 {
		s.resize(ctx, name)
		return
	}
	switch s.random.IntN(3) {
	case 0:
		if lab.DeleteJob(ctx, name) == nil {
			s.count["deleted"]++
			delete(s.open, name)
		}
	case 1:
		if s.open[name].activateAt.IsZero() && s.setActive(ctx, name, false) == nil {
			s.count["deactivated"]++
			s.open[name].activateAt = time.Now().Add(2 * time.Second)
		}
	case 2:
		if cluster := s.watcher.RunningOn(name); cluster != "" {
			if _, err := lab.Worker(cluster).Kubectl(ctx, "", "delete", "job/"+name, "-n", fleet.Namespace, "--wait=false"); err == nil {
				s.count["copies lost"]++
			}
		}
	}
}

// resize changes the number of pods of an elastic job.
func (s *soak) resize(ctx context.Context, name string) {
	size := fmt.Sprintf(`{"spec":{"parallelism":%d}}`, 1+s.random.IntN(3))
	if _, err := lab.Hub.Kubectl(ctx, "", "patch", "job/"+name, "-n", fleet.Namespace, "--type=merge", "-p", size); err == nil {
		s.count["resized"]++
		s.grown[name] = true
	}
}

// pickJob returns a random open job. The same seed and the same open jobs give the
// same result.
func (s *soak) pickJob() string {
	var names []string
	for i := max(0, s.submitted-4*soakOpenJobs); i < s.submitted; i++ {
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

// setActive activates or deactivates a job's Workload.
func (s *soak) setActive(ctx context.Context, name string, active bool) error {
	wl := s.watcher.Workload(name)
	if wl == nil {
		return fmt.Errorf("%s has no workload", name)
	}
	before := wl.DeepCopy()
	wl.Spec.Active = ptr.To(active)
	return lab.Hub.Client.Patch(ctx, wl, client.MergeFrom(before))
}

// deleteFinished deletes finished jobs, as their user would.
func (s *soak) deleteFinished(ctx context.Context) {
	for name := range s.open {
		if s.watcher.HasCondition(name, kueue.WorkloadFinished) && lab.DeleteJob(ctx, name) == nil {
			s.count["finished"]++
			delete(s.open, name)
		}
	}
}

// deleteHanging deletes jobs whose pods never start, as their user would.
func (s *soak) deleteHanging(ctx context.Context) {
	for name, j := range s.open {
		if !j.deleteAt.IsZero() && time.Now().After(j.deleteAt) && lab.DeleteJob(ctx, name) == nil {
			delete(s.open, name)
		}
	}
}

// deleteUnreported deletes jobs whose copies have all succeeded, on more than one cluster, and
// counts them. Kueue 0.19.2 can't report their end:
//  1. A worker is unreachable, and the job is sent to another one.
//  2. The copy on the first worker succeeds before Kueue can remove it.
//  3. Kueue copies its status to the job, which the API server refuses: status.startTime is that
//     of the second copy and immutable.
func (s *soak) deleteUnreported(ctx context.Context) {
	for name := range s.open {
		v, err := lab.View(ctx, name)
		if err != nil || v.Cluster == "" || len(v.Copies) < 2 || !hasSucceeded(ctx, name, v.Copies) {
			continue
		}
		if lab.DeleteJob(ctx, name) == nil {
			s.count["succeeded twice, not reported by Kueue"]++
			delete(s.open, name)
		}
	}
}

// hasSucceeded reports whether the job has succeeded on each of the clusters.
func hasSucceeded(ctx context.Context, name string, clusters []string) bool {
	for _, cluster := range clusters {
		if out, err := lab.Worker(cluster).Kubectl(ctx, "", "get", "job/"+name, "-n", fleet.Namespace, "-o", "jsonpath={.status.succeeded}"); err != nil || strings.TrimSpace(out) != "1" {
			return false
		}
	}
	return true
}

// describe returns the state of all open jobs.
func (s *soak) describe(ctx context.Context) string {
	var lines []string
	for name := range s.open {
		v, err := lab.View(ctx, name)
		lines = append(lines, fmt.Sprintf("%+v %v", v, err))
	}
	return strings.Join(lines, "\n")
}

// outages lists the programs that a fault ends, and their longest downtime. A program
// that is listed twice ends twice as often.
var outages = []struct {
	program string
	seconds int
}{
	{"operator-a", 2}, {"operator-b", 2}, {"operator-a", 2}, {"operator-b", 2},
	{"thanos-query", 30}, {"cluster1-prometheus", 15}, {"cluster2-prometheus", 15},
	{"cluster1-kube-apiserver", 10}, {"cluster2-kube-apiserver", 10}, {"cluster3-kube-apiserver", 10},
	{"hub-kueue", 3}, {"cluster2-kueue", 10}, {"hub-ocm-placement", 5},
}

// injectFaults ends and restarts programs until ctx ends. All programs run when it
// returns.
func (s *soak) injectFaults(ctx context.Context, t *testing.T, random *rand.Rand) error {
	for pause(ctx, time.Duration(3+random.IntN(9))*time.Second) {
		if random.IntN(len(outages)+1) == 0 {
			if err := s.lie(ctx, t, random); err != nil {
				return err
			}
			continue
		}
		o := outages[random.IntN(len(outages))]
		sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[random.IntN(2)]
		down := time.Duration(1+random.IntN(o.seconds)) * time.Second
		t.Logf("fault: %s gets %s and is down for %s", o.program, sig, down)
		if err := s.restart(ctx, o.program, sig, down); err != nil {
			return err
		}
		s.faults.Add(1)
	}
	return nil
}

// lie makes an exporter report devices free that are not, for a while.
func (s *soak) lie(ctx context.Context, t *testing.T, random *rand.Rand) error {
	cluster := []string{"cluster1", "cluster2"}[random.IntN(2)]
	node, lasts := cluster+"-gpu0", time.Duration(5+random.IntN(20))*time.Second
	t.Logf("fault: the exporter of %s reports all devices free for %s", node, lasts)
	if err := lab.HidePods(node, true); err != nil {
		return err
	}
	from := time.Now()
	pause(ctx, lasts)
	s.lies = append(s.lies, lie{cluster: cluster, from: from, until: time.Now().Add(soakSampleAge)})
	s.faults.Add(1)
	return lab.HidePods(node, false)
}

// restart ends a program and starts it again after down.
func (s *soak) restart(ctx context.Context, name string, sig syscall.Signal, down time.Duration) error {
	s.paused.Store(name == "hub-kueue")
	defer s.paused.Store(false)
	if err := lab.Programs().End(name, sig); err != nil {
		return err
	}
	pause(ctx, down)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	if err := lab.Programs().Restart(ctx, name); err != nil {
		return err
	}
	return fleet.Await(ctx, "Kueue to set managedBy of new jobs", lab.CheckMultiKueue)
}

// pause waits for d. It returns false if ctx ends first.
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

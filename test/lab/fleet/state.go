package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const stateFile = "state.json"

// State describes a running fleet to other processes.
type State struct {
	Pid         int               `json:"pid"`
	Started     time.Time         `json:"started"`
	Kubeconfigs map[string]string `json:"kubeconfigs"`
	Prometheus  map[string]string `json:"prometheus"`
	Thanos      string            `json:"thanos"`
	Kubectl     string            `json:"kubectl"`
	// Programs are all programs that the fleet started, by name.
	Programs map[string]ProgramState `json:"programs"`
}

// ProgramState is the state of a program's latest process.
type ProgramState struct {
	Pid int `json:"pid"`
	// Ended is why the process ended; "" = it runs.
	Ended string `json:"ended,omitempty"`
}

// writeState replaces the state file atomically. The fleet calls it whenever a program
// starts or ends.
func (f *Fleet) writeState() error {
	f.stateMu.Lock()
	defer f.stateMu.Unlock()
	s := State{Pid: os.Getpid(), Started: f.started, Thanos: f.Thanos, Programs: f.procs.states(), Kubectl: f.bin.Path("kubectl"),
		Kubeconfigs: map[string]string{}, Prometheus: map[string]string{}}
	for _, c := range append([]*Cluster{f.Hub}, f.Workers...) {
		s.Kubeconfigs[c.Name], s.Prometheus[c.Name] = c.Kubeconfig, c.Prometheus
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(f.opts.Dir, stateFile)
	return errors.Join(os.WriteFile(file+".tmp", content, 0o600), os.Rename(file+".tmp", file))
}

// ReadState reads the state of the fleet in dir. It fails if no fleet is running
// there.
func ReadState(dir string) (State, error) {
	var s State
	content, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("no lab is running in %s: start one with `go run ./test/lab up`", dir)
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("read the lab's state: %w", err)
	}
	pid, err := lockHolder(dir)
	if err != nil {
		return s, err
	}
	if pid == 0 {
		return s, fmt.Errorf("the lab in %s (pid %d) was killed; start it again with `go run ./test/lab up`", dir, s.Pid)
	}
	return s, nil
}

// acquireLock locks the folder for this process and removes the files of earlier
// runs. The kernel releases the lock when the process ends.
func acquireLock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the lab's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, pidErr := lockHolder(dir)
		return nil, errors.Join(fmt.Errorf("a lab is already running in %s (pid %d): end it with `go run ./test/lab down`, or use another folder with --dir", dir, pid), pidErr, lock.Close())
	}
	for _, old := range []string{"work", "logs", "pki", "kubeconfigs", "devices", "sockets", stateFile} {
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
			return nil, errors.Join(fmt.Errorf("remove the files of an earlier run: %w", err), lock.Close())
		}
	}
	if err := lock.Truncate(0); err != nil {
		return nil, err
	}
	_, err = lock.WriteString(strconv.Itoa(os.Getpid()))
	return lock, err
}

// lockHolder returns the process ID that the folder is locked by, or 0 if it is not
// locked.
func lockHolder(dir string) (int, error) {
	path := filepath.Join(dir, "lock")
	lock, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
		return 0, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(content)))
}

// Down sends SIGTERM to the process that runs the fleet in dir, and waits until it
// has ended.
func Down(dir string) error {
	pid, err := lockHolder(dir)
	if err != nil {
		return err
	}
	if pid == 0 {
		return fmt.Errorf("no lab is running in %s", dir)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end the lab (pid %d): %w", pid, err)
	}
	deadline := time.After(time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-deadline:
			return fmt.Errorf("the lab (pid %d) has not ended within a minute; its logs are in %s", pid, filepath.Join(dir, "logs"))
		case <-tick.C:
			if pid, err := lockHolder(dir); err != nil || pid == 0 {
				return err
			}
		}
	}
}

// Hints returns commands to explore the running fleet. job is a job on the fleet; "" = none.
func (f *Fleet) Hints(job string) string {
	lab := "go run ./test/lab"
	if dir, err := DefaultDir(); err != nil || dir != f.opts.Dir {
		lab += " --dir " + f.opts.Dir
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Explore the fleet from another terminal:\n")
	fmt.Fprintf(&b, "  cd %s\n", f.opts.Root)
	fmt.Fprintf(&b, "  export KUBECONFIG=%s PATH=%s:%s:$PATH\n", f.Hub.Kubeconfig, filepath.Dir(f.bin.Path("kubectl")), filepath.Join(f.opts.Root, "bin"))
	fmt.Fprintf(&b, "  kubectl get workloads -A              # the jobs, as Kueue sees them\n")
	fmt.Fprintf(&b, "  kubectl get addonplacementscores -A   # the scores of each cluster\n")
	if job != "" {
		fmt.Fprintf(&b, "  kubectl plimsoll explain workload job/%s -n %s --operator-url=https://%s --operator-insecure --token-file=<(kubectl create token explainer -n %s)\n", job, Namespace, f.OperatorMetrics, Namespace)
	}
	fmt.Fprintf(&b, "  kubectl plimsoll top --prometheus %s\n", f.Thanos)
	fmt.Fprintf(&b, "  %s status   # the running programs and their addresses\n", lab)
	fmt.Fprintf(&b, "  %s kubectl cluster1 get pods -A\n", lab)
	fmt.Fprintf(&b, "  %s logs plimsoll-operator\n", lab)
	fmt.Fprintf(&b, "  %s down     # end the fleet (or press Ctrl-C here)\n", lab)
	fmt.Fprintf(&b, "Thanos: %s   Prometheus of the hub: %s\n", f.Thanos, f.Hub.Prometheus)
	return b.String()
}

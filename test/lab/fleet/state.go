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

// State of a fleet, as another process sees it.
type State struct {
	Pid         int               `json:"pid"`
	Started     time.Time         `json:"started"`
	Kubeconfigs map[string]string `json:"kubeconfigs"`
	Prometheus  map[string]string `json:"prometheus"`
	Thanos      string            `json:"thanos"`
	Kubectl     string            `json:"kubectl"`
	Programs    map[string]int    `json:"programs"`
}

func (f *Fleet) writeState() error {
	s := State{Pid: os.Getpid(), Started: time.Now(), Thanos: f.Thanos, Programs: f.procs.Pids(), Kubectl: f.bin.Path("kubectl"),
		Kubeconfigs: map[string]string{}, Prometheus: map[string]string{}}
	for _, c := range append([]*Cluster{f.Hub}, f.Workers...) {
		s.Kubeconfigs[c.Name], s.Prometheus[c.Name] = c.Kubeconfig, c.Prometheus
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.opts.Dir, stateFile), content, 0o600)
}

// ReadState of the fleet that runs from dir.
func ReadState(dir string) (State, error) {
	var s State
	content, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("no lab runs from %s: start one with `go run ./test/lab up`", dir)
	}
	if err != nil {
		return s, err
	}
	if held, _ := holder(dir); held == 0 {
		return s, fmt.Errorf("the lab in %s (pid %d) was killed; `go run ./test/lab up` starts it anew", dir, s.Pid)
	}
	return s, json.Unmarshal(content, &s)
}

// acquire locks the folder for this process, and clears what a killed one left.
// The kernel releases the lock when its holder dies, however it dies.
func acquire(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the lab's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := holder(dir)
		return nil, errors.Join(fmt.Errorf("a lab runs from %s already (pid %d): end it with `go run ./test/lab down`, or give this one another folder with --dir", dir, pid), lock.Close())
	}
	for _, old := range []string{"work", "logs", "pki", "kubeconfigs", "silicon", "sockets", stateFile} {
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
			return nil, errors.Join(fmt.Errorf("clear an earlier run: %w", err), lock.Close())
		}
	}
	if err := lock.Truncate(0); err != nil {
		return nil, err
	}
	_, err = lock.WriteString(strconv.Itoa(os.Getpid()))
	return lock, err
}

// holder is the pid of the process that holds the folder's lock; 0 = none.
func holder(dir string) (int, error) {
	path := filepath.Join(dir, "lock")
	lock, err := os.Open(path)
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

// Down asks the process that runs the fleet in dir to end it, and waits until it has.
func Down(dir string) error {
	pid, err := holder(dir)
	if err != nil || pid == 0 {
		return fmt.Errorf("no lab runs from %s", dir)
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
			if pid, _ := holder(dir); pid == 0 {
				return nil
			}
		}
	}
}

// Hints are the commands to look around with.
func (f *Fleet) Hints() string {
	return fmt.Sprintf(`Look around (from another terminal):
  export KUBECONFIG=%s
  kubectl get workloads -A                      # Kueue's view of each job
  kubectl get addonplacementscores -A           # scores per cluster
  go run ./test/lab status                      # what runs, and where
  go run ./test/lab kubectl cluster1 get pods -A
  go run ./test/lab down                        # end it (or Ctrl-C here)
Thanos: %s   Prometheus of the hub: %s
`, f.Hub.Kubeconfig, f.Thanos, f.Hub.Prometheus)
}

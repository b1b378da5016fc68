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

// Hints returns commands to explore the running fleet.
func (f *Fleet) Hints() string {
	return fmt.Sprintf(`Explore the fleet from another terminal:
  export KUBECONFIG=%s
  kubectl get workloads -A                        # the jobs, as Kueue sees them
  kubectl get addonplacementscores -A             # the scores of each cluster
  go run ./test/lab status                        # the running programs and their addresses
  go run ./test/lab kubectl cluster1 get pods -A  # the pods of a worker cluster
  go run ./test/lab down                          # end the fleet (or press Ctrl-C here)
Thanos: %s   Prometheus of the hub: %s
`, f.Hub.Kubeconfig, f.Thanos, f.Hub.Prometheus)
}

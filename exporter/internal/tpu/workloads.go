package tpu

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// workload is the set of processes with open chips in a network namespace. Their runtime
// metric services share an IP address.
type workload struct {
	group
	processes int
	ports     string // TPU_RUNTIME_METRICS_PORTS of the first process with the variable
}

// findWorkloads returns a group for each workload on the node, in the order of their chips.
// The returned service describes the inspection of the processes. It is idle if no process
// has open chips, and failed if the processes cannot be inspected.
func (s *Source) findWorkloads() ([]group, device.Service) {
	service := device.Service{Name: "processes", Address: s.options.Procfs, State: device.ServiceIdle,
		Err: errors.New("no visible process holds a TPU; without hostPID only the exporter's own processes are visible")}
	pids, err := os.ReadDir(s.options.Procfs)
	if err != nil {
		service.State, service.Err = device.ServiceFailed, fmt.Errorf("list the processes: --tpu-procfs-root must be a mounted procfs: %w", err)
		return nil, service
	}
	denied := 0
	var problems []error
	byHost := map[string]*workload{}
	for _, pid := range pids {
		if _, err := strconv.Atoi(pid.Name()); err != nil {
			continue
		}
		err := s.addProcess(byHost, filepath.Join(s.options.Procfs, pid.Name()))
		switch {
		case errors.Is(err, fs.ErrPermission):
			denied++
		case err != nil && !hasExited(err):
			problems = append(problems, err)
		}
	}
	if denied > 0 {
		problems = append(problems, fmt.Errorf("no permission to inspect %d processes; CAP_SYS_PTRACE is required", denied))
	}
	switch found := groupsOf(byHost); {
	case len(found) > 0:
		service.State, service.Err = device.ServiceServing, errors.Join(problems...)
		return found, service
	case len(problems) > 0:
		service.State, service.Err = device.ServiceFailed, errors.Join(problems...)
	}
	return nil, service
}

// groupsOf returns the groups of workloads, by host address.
func groupsOf(byHost map[string]*workload) []group {
	var groups []group
	for host, w := range byHost {
		for _, port := range parsePorts(w.ports, w.processes) {
			if host == "" {
				break
			}
			w.addresses = append(w.addresses, net.JoinHostPort(host, port))
		}
		slices.Sort(w.chips)
		w.chips = slices.Compact(w.chips)
		groups = append(groups, w.group)
	}
	slices.SortFunc(groups, func(a, b group) int { return slices.Compare(a.chips, b.chips) })
	return groups
}

// addProcess adds the process in a procfs directory to its workload if chips are open. If the
// ports of the process are unreadable, addProcess uses the defaults and returns the error.
func (s *Source) addProcess(byHost map[string]*workload, dir string) error {
	chips, err := s.openChips(dir)
	if len(chips) == 0 {
		return err
	}
	host, hostErr := s.serviceHost(dir)
	if _, gone := os.Stat(dir); hasExited(gone) {
		return gone
	}
	w := byHost[host]
	if w == nil {
		w = &workload{}
		byHost[host] = w
	}
	if host == "" {
		w.err, hostErr = hostErr, nil
	}
	w.processes++
	w.chips = append(w.chips, chips...)
	ports, portsErr := environmentVariable(dir, "TPU_RUNTIME_METRICS_PORTS")
	w.ports = cmp.Or(w.ports, ports)
	return errors.Join(err, hostErr, portsErr)
}

// hasExited reports whether err means that a process exited during its inspection.
func hasExited(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// openChips returns the indexes of the chips opened by a process.
func (s *Source) openChips(dir string) (chips []int, err error) {
	files, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		path, err := os.Readlink(filepath.Join(dir, "fd", f.Name()))
		if errors.Is(err, fs.ErrPermission) {
			return chips, err
		}
		if err != nil {
			continue // the file was closed in the meantime
		}
		node, inDev := strings.CutPrefix(path, strings.TrimSuffix(s.options.Dev, "/")+"/")
		if i := slices.IndexFunc(s.chips, func(c chip) bool { return c.node == node }); inDev && i >= 0 {
			chips = append(chips, i)
		}
	}
	return chips, nil
}

// environmentVariable returns a variable from the environment of a process, or an empty
// string if the variable is not set.
func environmentVariable(dir, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return "", err
	}
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value), nil
		}
	}
	return "", nil
}

package tpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// workload is the set of processes with open chips in a network namespace. Their runtime
// metric services share an IP address.
type workload struct {
	group
	processes int
	ports     string // TPU_RUNTIME_METRICS_PORTS of the first process with the variable
}

// processes is the name of the service that describes the inspection of the processes.
const processes = "processes"

// findWorkloads returns a group for each workload on the node, in the order of their chips.
// The returned service describes the inspection of the processes. It is idle if no process
// has open chips, and failed if the processes cannot be inspected. isComplete is false if another
// process may hold a chip: one that cannot be inspected, or that is not visible.
func (s *Source) findWorkloads(ctx context.Context) (groups []group, service device.Service, isComplete bool) {
	ctx, cancel := context.WithTimeout(ctx, inspectionTimeout)
	defer cancel()
	service = device.Service{Name: processes, Address: s.options.Procfs, State: device.ServiceIdle,
		Err: errors.New("no visible process holds a TPU; without hostPID only the exporter's own processes are visible")}
	denied, tooLarge, seesHost := false, false, false
	var problems []error
	byHost := map[string]*workload{}
	err := eachName(s.options.Procfs, func(name string) error {
		if _, err := strconv.Atoi(name); err != nil {
			return nil // no process
		}
		dir := filepath.Join(s.options.Procfs, name)
		seesHost = seesHost || s.hasOtherPIDNamespace(dir)
		err := s.addProcess(ctx, byHost, dir)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrPermission):
			denied = true
		case errors.Is(err, errTooManyFiles):
			tooLarge = true
		case err != nil && !hasExited(err):
			problems = append(problems, err)
		}
		return nil
	})
	switch {
	case ctx.Err() != nil:
		problems = append(problems, fmt.Errorf("not all processes can be inspected within %s", inspectionTimeout))
	case err != nil:
		service.State, service.Err = device.ServiceFailed, fmt.Errorf("list the processes: --tpu-procfs-root must be a mounted procfs: %w", err)
		return nil, service, false
	}
	if denied {
		problems = append(problems, errors.New("no permission to inspect some processes; CAP_SYS_PTRACE is required, and an AppArmor profile that permits it"))
	}
	if tooLarge {
		problems = append(problems, fmt.Errorf("some processes have more than %d open files, of which the others are not inspected", maxOpenFiles))
	}
	switch groups = groupsOf(byHost); {
	case len(groups) > 0:
		service.State, service.Err = device.ServiceServing, errors.Join(problems...)
	case len(problems) > 0:
		service.State, service.Err = device.ServiceFailed, errors.Join(problems...)
	}
	return groups, service, len(problems) == 0 && seesHost
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
func (s *Source) addProcess(ctx context.Context, byHost map[string]*workload, dir string) error {
	chips, err := s.openChips(ctx, dir)
	if len(chips) == 0 {
		return err
	}
	host, hostErr := s.serviceHost(dir)
	if _, gone := os.Stat(dir); hasExited(gone) {
		return gone
	}
	w := byHost[host]
	if w == nil {
		w = &workload{group: group{isHeld: true}}
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

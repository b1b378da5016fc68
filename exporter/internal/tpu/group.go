package tpu

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// group is a set of runtime metric services that together report the same chips.
type group struct {
	addresses []string
	chips     []int // indexes in Source.chips
	isHeld    bool  // processes have the chips open
	err       error // why the addresses of the services are unknown
}

// groupResult is the combined result of the services of a group.
type groupResult struct {
	runtimeMetrics
	serving  bool // at least one service responded
	idle     bool // no service failed or responded
	services []device.Service
}

// query reads every service of the group and combines the results. A service without a
// workload does not affect the others.
func (g group) query(ctx context.Context) groupResult {
	if g.err != nil {
		return groupResult{services: []device.Service{{Name: "runtime", State: device.ServiceFailed, Err: g.err}}}
	}
	results, failures := make([]runtimeMetrics, len(g.addresses)), make([]error, len(g.addresses))
	var all sync.WaitGroup
	for i, address := range g.addresses {
		all.Go(func() { results[i], failures[i] = queryRuntime(ctx, address, len(g.addresses) > 1) })
	}
	all.Wait()
	combined := groupResult{runtimeMetrics: runtimeMetrics{samples: map[string][]sample{}}, idle: true}
	for i, result := range results {
		service := device.Service{Name: "runtime", Address: g.addresses[i], State: device.ServiceServing, Err: errors.Join(result.failures...)}
		switch err := failures[i]; {
		case errors.Is(err, errIdle):
			service.State, service.Err = device.ServiceIdle, err
		case err != nil:
			service.State, service.Err = device.ServiceFailed, err
			combined.idle = false
		default:
			combined.serving, combined.idle = true, false
		}
		combined.services = append(combined.services, service)
		for name, samples := range result.samples {
			combined.samples[name] = append(combined.samples[name], offsetDevices(samples, i)...)
		}
		combined.cores = append(combined.cores, result.cores...)
	}
	return combined
}

// offsetDevices makes the device numbers of several processes distinct. Each process numbers
// its devices from 0.
func offsetDevices(samples []sample, process int) []sample {
	for i := range samples {
		if samples[i].device >= 0 {
			samples[i].device += int64(process) << 32
		}
	}
	return samples
}

// findGroups returns the runtime metric services to read, with the chips of each group.
// Services come from Options.Runtimes, else from the processes with open chips, else from
// localhost. Services without known processes report the allocated chips, or all chips if
// none is allocated. isComplete is false if another process may hold a chip.
func (s *Source) findGroups(ctx context.Context) (groups []group, isComplete bool) {
	isComplete = true
	if len(s.options.Runtimes) == 0 {
		var service device.Service
		groups, service, isComplete = s.findWorkloads(ctx)
		s.services = append(s.services, service)
		if len(groups) > 0 {
			return groups, isComplete
		}
	}
	g := group{addresses: s.options.Runtimes}
	if len(g.addresses) == 0 {
		for _, port := range parsePorts(s.options.Ports, 1) {
			g.addresses = append(g.addresses, "localhost:"+port)
		}
	}
	var all []int
	for i, d := range s.devices {
		all = append(all, i)
		if s.options.IsAllocated(d.Minor) {
			g.chips = append(g.chips, i)
		}
	}
	if len(g.chips) == 0 {
		g.chips = all
	}
	return []group{g}, isComplete
}

const (
	// firstPort is the default port of the first runtime metric service on a host.
	firstPort = 8431
	// maxPorts limits the services read on a host.
	maxPorts = 8
)

// parsePorts returns the ports in a comma-separated list, or the first n default ports if
// the list has none. The list may come from the environment of a workload, so invalid ports
// and ports after the first maxPorts are ignored.
func parsePorts(list string, n int) []string {
	var ports []string
	for name := range strings.SplitSeq(list, ",") {
		if port, err := strconv.ParseUint(strings.TrimSpace(name), 10, 16); err == nil && port > 0 && len(ports) < maxPorts {
			ports = append(ports, strconv.FormatUint(port, 10))
		}
	}
	if len(ports) > 0 {
		return ports
	}
	for i := range min(n, maxPorts) {
		ports = append(ports, strconv.Itoa(firstPort+i))
	}
	return ports
}

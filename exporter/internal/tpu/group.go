package tpu

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// group of services that share the chips they speak of.
type group struct {
	addresses []string
	chips     []int // indices
}

type answer struct {
	told
	serving  bool
	idle     bool
	services []device.Service
}

// ask every service of the group. One that does not run leaves the others' word.
func (g group) ask(ctx context.Context) answer {
	parts, failures := make([]told, len(g.addresses)), make([]error, len(g.addresses))
	var all sync.WaitGroup
	for i, address := range g.addresses {
		all.Go(func() { parts[i], failures[i] = ask(ctx, address, len(g.addresses) > 1) })
	}
	all.Wait()
	a := answer{told: told{metrics: map[string][]sample{}}, idle: true}
	for i, part := range parts {
		service := device.Service{Name: "runtime", Address: g.addresses[i], State: device.ServiceServing, Err: errors.Join(part.lacks...)}
		switch err := failures[i]; {
		case errors.Is(err, errIdle):
			service.State, service.Err = device.ServiceIdle, err
		case err != nil:
			service.State, service.Err = device.ServiceFailed, err
			a.idle = false
		default:
			a.serving, a.idle = true, false
		}
		a.services = append(a.services, service)
		for name, values := range part.metrics {
			a.metrics[name] = append(a.metrics[name], shift(values, i)...)
		}
		a.cores = append(a.cores, part.cores...)
	}
	return a
}

// shift keeps apart the devices of several processes, each of which counts from 0.
func shift(values []sample, process int) []sample {
	for i := range values {
		if values[i].device >= 0 {
			values[i].device += int64(process) << 32
		}
	}
	return values
}

// groups of services, and the chips that each speaks of.
func (s *Source) groups() []group {
	if len(s.o.Runtimes) == 0 {
		found, service := s.processes()
		s.services = append(s.services, service)
		if len(found) > 0 {
			return found
		}
	}
	g := group{addresses: s.o.Runtimes}
	if len(g.addresses) == 0 {
		for _, port := range ports(s.o.Ports, 1) {
			g.addresses = append(g.addresses, "localhost:"+port)
		}
	}
	var all []int
	for i, d := range s.seen {
		all = append(all, i)
		if s.o.Held(d.Minor) {
			g.chips = append(g.chips, i)
		}
	}
	if len(g.chips) == 0 {
		g.chips = all
	}
	return []group{g}
}

// maxPorts is how many services of the runtime there are on one host.
const maxPorts = 8

// ports that a list names, or the first n of the runtime's own where it names none.
// A workload's list is its owner's to write: what is no port is left out, and so are
// those past the eighth.
func ports(list string, n int) []string {
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		if port, err := strconv.ParseUint(strings.TrimSpace(name), 10, 16); err == nil && port > 0 && len(out) < maxPorts {
			out = append(out, strconv.FormatUint(port, 10))
		}
	}
	if len(out) > 0 {
		return out
	}
	for i := range min(n, maxPorts) {
		out = append(out, strconv.Itoa(8431+i))
	}
	return out
}

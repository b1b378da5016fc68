package tpu

import (
	"bufio"
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

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// processes that have chips open, as groups of those that share a network: the
// services are in them. None where the host's processes can't be seen; the service
// says whether they can.
func (s *Source) processes() ([]group, device.Service) {
	service := device.Service{Name: "processes", Address: s.o.Procfs, State: device.ServiceIdle,
		Err: errors.New("no process that is seen holds a TPU; without hostPID only the exporter's own are seen")}
	pids, err := os.ReadDir(s.o.Procfs)
	if err != nil {
		service.State, service.Err = device.ServiceFailed, fmt.Errorf("who holds TPUs can't be looked for; --tpu-procfs-root must name procfs: %w", err)
		return nil, service
	}
	denied := 0
	type workload struct {
		group
		processes int
		ports     string
	}
	byHost := map[string]*workload{}
	for _, pid := range pids {
		if _, err := strconv.Atoi(pid.Name()); err != nil {
			continue
		}
		dir := filepath.Join(s.o.Procfs, pid.Name())
		held, err := s.opened(dir)
		if errors.Is(err, fs.ErrPermission) {
			denied++
		}
		if len(held) == 0 {
			continue
		}
		host := s.host(dir)
		w := byHost[host]
		if w == nil {
			w = &workload{}
			byHost[host] = w
		}
		w.processes++
		w.chips = append(w.chips, held...)
		w.ports = cmp.Or(w.ports, variable(dir, "TPU_RUNTIME_METRICS_PORTS"))
	}
	var found []group
	for host, w := range byHost {
		for _, port := range ports(w.ports, w.processes) {
			w.addresses = append(w.addresses, net.JoinHostPort(host, port))
		}
		slices.Sort(w.chips)
		w.chips = slices.Compact(w.chips)
		found = append(found, w.group)
	}
	slices.SortFunc(found, func(a, b group) int { return slices.Compare(a.chips, b.chips) })
	switch {
	case len(found) > 0:
		service.State, service.Err = device.ServiceServing, nil
	case denied > 0:
		service.State, service.Err = device.ServiceFailed, fmt.Errorf("no permission to see what %d processes hold; it takes CAP_SYS_PTRACE", denied)
	}
	return found, service
}

// opened are the chips whose device nodes a process has open.
func (s *Source) opened(dir string) (held []int, err error) {
	files, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return nil, err // it has ended, or is not ours to see
	}
	for _, f := range files {
		path, err := os.Readlink(filepath.Join(dir, "fd", f.Name()))
		if err != nil {
			continue
		}
		node, below := strings.CutPrefix(path, strings.TrimSuffix(s.o.Dev, "/")+"/")
		if i := slices.IndexFunc(s.chips, func(c chip) bool { return c.node == node }); below && i >= 0 {
			held = append(held, i)
		}
	}
	return held, nil
}

// variable of a process's environment.
func variable(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return ""
	}
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}

// host is an address of a process's network: localhost where it is the exporter's
// own, else the first address of its own, which is the pod's.
func (s *Source) host(dir string) string {
	own, err := os.Readlink(filepath.Join(s.o.Procfs, "self/ns/net"))
	if theirs, err2 := os.Readlink(filepath.Join(dir, "ns/net")); err == nil && err2 == nil && own == theirs {
		return "localhost"
	}
	text, err := os.ReadFile(filepath.Join(dir, "net/fib_trie"))
	if err != nil {
		return "localhost"
	}
	last, lines := "", bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 2 && words[0] == "|--":
			last = words[1]
		case slices.Contains(words, "host") && slices.Contains(words, "LOCAL"):
			if ip := net.ParseIP(last); ip != nil && !ip.IsLoopback() {
				return last
			}
		}
	}
	return "localhost"
}

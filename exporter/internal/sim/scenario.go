package sim

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// scenario changes the state of eight idle H100s to the state at a time since the start, and
// returns the XIDs up to this time. It may replace the devices.
type scenario func(s *State, since time.Duration) []device.XID

var scenarios = map[string]scenario{
	"steady": func(s *State, _ time.Duration) []device.XID {
		for i := range s.Devices {
			s.Devices[i].Background = 0.6
		}
		return nil
	},
	// Training that computes for 40 s and then waits 10 s for data.
	"bursty": func(s *State, since time.Duration) []device.XID {
		for i := range s.Devices {
			if math.Mod(since.Seconds(), 50) < 40 {
				s.Devices[i].Background = 0.95
			}
		}
		return nil
	},
	// Inference with the load of a day compressed into ten minutes.
	"inference": func(s *State, since time.Duration) []device.XID {
		for i := range s.Devices {
			s.Devices[i].Background = 0.35 + 0.3*math.Sin(2*math.Pi*since.Minutes()/10)
		}
		return nil
	},
	// The cooler of a device fails: the device heats up and throttles its clocks.
	"thermal": func(s *State, since time.Duration) []device.XID {
		for i := range s.Devices {
			s.Devices[i].Background = 0.8
		}
		s.Devices[5].Heat = math.Min(40, since.Seconds())
		return nil
	},
	// A device falls off the bus after ten seconds and reports XID 79.
	"xid79": func(s *State, since time.Duration) []device.XID {
		if since < 10*time.Second {
			return nil
		}
		s.Devices[3].State = stateLost
		return []device.XID{{UUID: s.Devices[3].UUID, Code: 79}}
	},
	"gpu-lost": func(s *State, _ time.Duration) []device.XID {
		s.Devices[3].State = stateLost
		return nil
	},
	// Two devices have MIG instances. After 20 s the second gets instances of other profiles.
	"mig-reconfig": func(s *State, since time.Duration) []device.XID {
		s.Devices[0].partition("1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb")
		s.Devices[1].partition("3g.40gb", "3g.40gb")
		if since >= 20*time.Second {
			s.Devices[1].partition("2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb")
		}
		return nil
	},
	"tpu-slice": tpuSlice,
	"amd-node":  amdNode,
	// Time slicing: four processes share each of two devices. The first computes, two serve
	// occasional requests and the last only holds memory. The first exits after 30 s.
	"time-slice": func(s *State, since time.Duration) []device.XID {
		for i := range 2 {
			s.Devices[i].Processes = []ProcessState{{1001 + 10*i, 20000, 0.5}, {1002 + 10*i, 8000, 0.2}, {1003 + 10*i, 8000, 0.1}, {1004 + 10*i, 4000, 0}}
			if since >= 30*time.Second {
				s.Devices[i].Processes = s.Devices[i].Processes[1:]
			}
		}
		return nil
	},
	// MPS: two processes share a device. After 30 s the first uses more than half of the memory,
	// which no limit prevents.
	"share-exceeded": func(s *State, since time.Duration) []device.XID {
		s.Devices[0].MPS = true
		s.Devices[0].Processes = []ProcessState{{1001, 30000, 0.4}, {1002, 8000, 0.2}}
		if since >= 30*time.Second {
			s.Devices[0].Processes[0].MemoryMiB = 60000
		}
		return nil
	},
	"gpu-hung": func(s *State, _ time.Duration) []device.XID {
		s.Devices[3].State = stateHung
		return nil
	},
}

// Scenarios returns the names of the scenarios, sorted.
func Scenarios() []string { return slices.Sorted(maps.Keys(scenarios)) }

// FromScenario returns a Source for a named scenario. Time starts with the call.
func FromScenario(name string, seed int64, isAllocated func(uuid string) bool, log *slog.Logger) (*Source, error) {
	play, ok := scenarios[name]
	if !ok {
		return nil, fmt.Errorf("unknown scenario %q, must be one of %s", name, strings.Join(Scenarios(), ", "))
	}
	start := time.Now()
	reported := map[device.XID]bool{}
	return newSource(isAllocated, log, func(now time.Time) (State, []device.XID, error) {
		s := idleH100s(seed)
		var xids []device.XID
		for _, xid := range play(&s, now.Sub(start)) {
			if !reported[xid] {
				reported[xid] = true
				xids = append(xids, xid)
			}
		}
		return s, xids, nil
	}), nil
}

// idleH100s returns the state of eight idle H100s. Their UUIDs depend on the seed.
func idleH100s(seed int64) State {
	s := State{Seed: seed}
	for i := range 8 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d", seed, i))
		s.Devices = append(s.Devices, DeviceState{Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, State: stateOK, NVSwitch: true,
			UUID: "GPU-" + formatUUID(sum)})
	}
	return s
}

package sim

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math"
	"sort"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// scenario makes the state of eight H100s, or of other devices in their place, at a time since the start.
type scenario func(s *State, since time.Duration) []device.XID

var scenarios = map[string]scenario{
	"steady": func(s *State, _ time.Duration) []device.XID {
		for i := range s.Devices {
			s.Devices[i].Background = 0.6
		}
		return nil
	},
	// Training that computes for 40 s and waits for data for 10 s.
	"bursty": func(s *State, since time.Duration) []device.XID {
		for i := range s.Devices {
			if math.Mod(since.Seconds(), 50) < 40 {
				s.Devices[i].Background = 0.95
			}
		}
		return nil
	},
	// Inference: a day's wave within ten minutes.
	"inference": func(s *State, since time.Duration) []device.XID {
		for i := range s.Devices {
			s.Devices[i].Background = 0.35 + 0.3*math.Sin(2*math.Pi*since.Minutes()/10)
		}
		return nil
	},
	// The cooler of one device fails: it grows hot, and its clocks are held down.
	"thermal": func(s *State, since time.Duration) []device.XID {
		for i := range s.Devices {
			s.Devices[i].Background = 0.8
		}
		s.Devices[5].Heat = math.Min(40, since.Seconds())
		return nil
	},
	// A device falls off the bus after ten seconds, with its XID.
	"xid79": func(s *State, since time.Duration) []device.XID {
		if since < 10*time.Second {
			return nil
		}
		s.Devices[3].State = "lost"
		return []device.XID{{UUID: s.Devices[3].UUID, Code: 79}}
	},
	"gpu-lost": func(s *State, _ time.Duration) []device.XID {
		s.Devices[3].State = "lost"
		return nil
	},
	// Two devices are cut by MIG; after 20 s the second is cut anew, in other profiles.
	"mig-reconfig": func(s *State, since time.Duration) []device.XID {
		s.Devices[0].cut("1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb")
		s.Devices[1].cut("3g.40gb", "3g.40gb")
		if since >= 20*time.Second {
			s.Devices[1].cut("2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb")
		}
		return nil
	},
	"tpu-slice": slice,
	// Four processes share each of two devices in slices of time: one computes, two
	// serve now and then, and one only holds memory. After 30 s the first is done.
	"time-slice": func(s *State, since time.Duration) []device.XID {
		for i := range 2 {
			s.Devices[i].Processes = []ProcessState{{1001 + 10*i, 20000, 0.5}, {1002 + 10*i, 8000, 0.2}, {1003 + 10*i, 8000, 0.1}, {1004 + 10*i, 4000, 0}}
			if since >= 30*time.Second {
				s.Devices[i].Processes = s.Devices[i].Processes[1:]
			}
		}
		return nil
	},
	"gpu-hung": func(s *State, _ time.Duration) []device.XID {
		s.Devices[3].State = "hung"
		return nil
	},
}

// Scenarios by name.
func Scenarios() []string {
	var names []string
	for name := range scenarios {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// FromScenario simulates a named scenario, mostly of eight H100s.
func FromScenario(name string, seed int64, held func(uuid string) bool, log *slog.Logger) (*Source, error) {
	play, ok := scenarios[name]
	if !ok {
		return nil, fmt.Errorf("no scenario %q; there are %s", name, strings.Join(Scenarios(), ", "))
	}
	start := time.Now()
	seen := map[device.XID]bool{}
	return newSource(held, log, func(now time.Time) (State, []device.XID, error) {
		s := State{Seed: seed}
		for i := range 8 {
			sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d", seed, i))
			s.Devices = append(s.Devices, DeviceState{Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, State: "ok", NVSwitch: true,
				UUID: "GPU-" + uuidOf(sum)})
		}
		var fresh []device.XID
		for _, xid := range play(&s, now.Sub(start)) {
			if !seen[xid] {
				seen[xid] = true
				fresh = append(fresh, xid)
			}
		}
		return s, fresh, nil
	}), nil
}

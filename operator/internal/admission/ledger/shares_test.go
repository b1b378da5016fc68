package ledger

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// sharing returns pods with one device each, and a share of it.
func sharing(pods int64, s shape.Share) shape.PodSet {
	p := podSet(1, pods)
	p.Share = &s
	return p
}

func TestSlotsTakenByShares(t *testing.T) {
	const gib = int64(1) << 30
	bytes := func(memory, cores int64) shape.Share {
		return shape.Share{Memory: memory * gib, CorePercent: cores}
	}
	percent := func(memory, cores int64) shape.Share {
		return shape.Share{MemoryPercent: memory, CorePercent: cores}
	}
	for _, tc := range []struct {
		name       string
		p, other   shape.Share
		pods, want int64
	}{
		{"same share", bytes(10, 30), bytes(10, 30), 3, 3},
		{"memory decides", bytes(10, 30), bytes(25, 30), 2, 6},
		{"cores decide", bytes(10, 30), bytes(10, 70), 2, 6},
		{"a small pod takes a place on each device", bytes(40, 0), bytes(1, 0), 4, 4},
		{"without cores, their memory counts", bytes(10, 0), bytes(20, 90), 1, 2},
		{"percentages", percent(20, 0), percent(50, 0), 2, 6},
		{"a device has no more places than this", percent(40, 0), percent(100, 100), 2, 4},
		{"bytes and a percentage: all places of the device", percent(40, 0), bytes(1, 0), 2, 4},
		{"a percentage and bytes: all places of the device", bytes(1, 25), percent(1, 0), 2, 8},
		{"a percentage and bytes without cores: unknown", bytes(1, 0), percent(1, 0), 1, math.MaxInt32},
		{"more than the device", percent(150, 0), percent(150, 0), 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := SlotsTaken([]shape.PodSet{sharing(tc.pods, tc.other)}, sharing(1, tc.p), 100); got != tc.want {
				t.Errorf("%d slots, want %d", got, tc.want)
			}
		})
	}
	if got := SlotsTaken([]shape.PodSet{podSet(8, 2)}, sharing(1, percent(50, 0)), 0); got != 32 {
		t.Errorf("pods with whole devices take %d slots, want 32", got)
	}
	// Their devices may be on nodes without shares, and how many shares in bytes fit on one is unknown.
	if got := SlotsTaken([]shape.PodSet{podSet(8, 2), sharing(1, bytes(20, 0))}, sharing(1, bytes(10, 0)), 0); got != 2 {
		t.Errorf("pods with whole devices and one with a share take %d slots of shares in bytes, want 2", got)
	}
	other := sharing(1, percent(50, 0))
	other.Model = "NVIDIA-L4"
	if got := SlotsTaken([]shape.PodSet{other}, sharing(1, percent(50, 0)), 0); got != 0 {
		t.Errorf("pods on another model take %d slots", got)
	}
}

// No request of pods that Kueue does not count adds room, whatever it is.
func TestSlotsTakenByHugeRequestsNeverAddRoom(t *testing.T) {
	huge := podSet(1<<30, math.MaxInt32)
	for _, tc := range []struct{ p, other shape.Share }{
		{shape.Share{Memory: 1 << 20}, shape.Share{Memory: 1 << 50}},
		{shape.Share{MemoryRatio: 1e-300}, shape.Share{MemoryRatio: 1}},
		{shape.Share{MemoryPercent: 50}, shape.Share{MemoryPercent: 1}},
	} {
		huge.Share = &tc.other
		for n := 1; n <= 8; n++ {
			if got := SlotsTaken(slices.Repeat([]shape.PodSet{huge}, n), sharing(1, tc.p), 0); got != math.MaxInt32 {
				t.Errorf("%d pod sets with %s of each device take %d slots with %s, want all", n, tc.other, got, tc.p)
			}
		}
	}
}

func TestSharesReturned(t *testing.T) {
	percent := func(devices, pods, memory int64) shape.PodSet {
		p := podSet(devices, pods)
		p.Share = &shape.Share{MemoryPercent: memory}
		return p
	}
	for _, tc := range []struct {
		name    string
		held, p shape.PodSet
		want    int64
	}{
		{"equal shares", percent(1, 3, 50), percent(1, 1, 50), 3},
		{"smaller shares", percent(1, 3, 40), percent(1, 1, 50), 0},
		{"pods with several shares", percent(1, 5, 50), percent(2, 1, 50), 2},
		{"whole devices", podSet(8, 2), percent(1, 1, 100), 16},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := SharesReturned(tc.held, tc.p); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// promisesAfter fails if the room that the ledger leaves for p is more than what is left after n pods
// have tried to start. start takes what a random pod consumes, or returns false. It reports whether
// some have started and room is left.
func promisesAfter(t *testing.T, p shape.PodSet, room func() int64, start func() (shape.Share, bool), n int) bool {
	t.Helper()
	before := room()
	var others []shape.PodSet
	for range n {
		if s, ok := start(); ok {
			others = append(others, sharing(1, s))
		}
	}
	left, after := room(), before-SlotsTaken(others, p, 0)
	if after > left {
		t.Fatalf("the ledger promises %d of %d pods with %s, %d fit after %v", after, before, p.Share, left, others)
	}
	return after > 0 && len(others) > 0
}

// KAI Scheduler counts a fraction in whole MiB, rounded down. For random devices and pods, the room
// after the ledger is never more than what is left when the pods have started.
func TestFractionsInLedgerNeverPromiseTooMuch(t *testing.T) {
	random := rand.New(rand.NewPCG(20261125, 4))
	ratios := []float64{0.01, 0.125, 0.25, 0.29, 0.3, 0.333, 1. / 3, 0.3334, 0.5, 2. / 3, 0.9, 1}
	promised := 0
	for range 5000 {
		capacity := 10_000 + 100*random.Int64N(800)
		of := func(s shape.Share) int64 { return int64(s.MemoryRatio * float64(capacity)) }
		p := sharing(1, shape.Share{MemoryRatio: ratios[random.IntN(len(ratios))]})
		free := make([]int64, 1+random.IntN(4))
		for i := range free {
			free[i] = capacity - random.Int64N(3)*random.Int64N(capacity/2)
		}
		room := func() (n int64) {
			for _, f := range free {
				n += f / of(*p.Share)
			}
			return n
		}
		start := func() (shape.Share, bool) {
			s, at := shape.Share{MemoryRatio: ratios[random.IntN(len(ratios))]}, random.IntN(len(free))
			if of(s) > free[at] {
				return s, false
			}
			free[at] -= of(s)
			return s, true
		}
		if promisesAfter(t, p, room, start, random.IntN(4)) {
			promised++
		}
	}
	if promised < 100 {
		t.Errorf("only %d cases have room", promised)
	}
}

// A device may round up the request of a claim, by an amount that the hub does not know.
func TestSlotsTakenByClaims(t *testing.T) {
	claim := func(memory, cores int64) shape.Share {
		s := shape.Share{Memory: memory << 30, CorePercent: cores, Claimed: true}
		if memory == 0 {
			s.MemoryPercent = 100
		}
		return s
	}
	for _, tc := range []struct {
		name     string
		p, other shape.Share
		want     int64 // for one pod
	}{
		{"same share", claim(10, 30), claim(10, 30), 1},
		{"a smaller share", claim(10, 30), claim(5, 30), 1},
		{"more memory: all places of the device", claim(10, 30), claim(11, 30), 3},
		{"more cores: all places of the device", claim(10, 30), claim(10, 31), 3},
		{"more memory, and no cores: unknown", claim(10, 0), claim(11, 0), math.MaxInt32},
		{"defaults", claim(0, 0), claim(0, 0), 1},
		{"memory and its default: unknown", claim(10, 0), claim(0, 0), math.MaxInt32},
		{"cores and their default: all places of the device", claim(10, 30), claim(10, 0), 3},
		{"a default of cores and cores: unknown", claim(10, 0), claim(10, 30), math.MaxInt32},
		{"a share of HAMi", claim(10, 30), shape.Share{Memory: 1 << 30, CorePercent: 1}, 3},
		{"for a share of HAMi", shape.Share{MemoryPercent: 50}, claim(10, 30), 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := SlotsTaken([]shape.PodSet{sharing(1, tc.other)}, sharing(1, tc.p), 0); got != tc.want {
				t.Errorf("%d slots, want %d", got, tc.want)
			}
		})
	}
}

// claimDevice is a device whose policy rounds the memory of a claim up: to values, or to steps.
type claimDevice struct {
	memory, minimum, step, byDefault int64
	values                           []int64
}

func (d claimDevice) consumed(request int64) int64 {
	switch {
	case request == 0:
		return d.byDefault
	case d.values != nil:
		for _, v := range d.values {
			if v >= request {
				return v
			}
		}
		return math.MaxInt64 // the device does not take it
	case request < d.minimum:
		return d.minimum
	}
	return d.minimum + (request-d.minimum+d.step-1)/d.step*d.step
}

// For random devices with policies and random claims, the room after the ledger is never more than
// what is left when the pods have started.
func TestClaimsInLedgerNeverPromiseTooMuch(t *testing.T) {
	random := rand.New(rand.NewPCG(20261125, 1))
	share := func() shape.Share {
		if random.IntN(4) == 0 {
			return shape.Share{MemoryPercent: 100, Claimed: true}
		}
		return shape.Share{Memory: 1 + random.Int64N(40), Claimed: true}
	}
	promised := 0
	for range 2000 {
		devices := make([]claimDevice, 1+random.IntN(4))
		for i := range devices {
			devices[i] = claimDevice{memory: random.Int64N(100), minimum: random.Int64N(20), step: 1 + random.Int64N(20), byDefault: 1 + random.Int64N(50)}
			if random.IntN(2) == 0 {
				devices[i].values = []int64{1 + random.Int64N(10), 11 + random.Int64N(10), 21 + random.Int64N(80)}
			}
		}
		p := sharing(1, share())
		room := func() (n int64) {
			for _, d := range devices {
				n += d.memory / max(1, d.consumed(p.Share.Memory))
			}
			return n
		}
		start := func() (shape.Share, bool) {
			s, at := share(), random.IntN(len(devices))
			used := devices[at].consumed(s.Memory)
			if used > devices[at].memory {
				return s, false
			}
			devices[at].memory -= used
			return s, true
		}
		if promisesAfter(t, p, room, start, random.IntN(3)) {
			promised++
		}
	}
	if promised < 50 {
		t.Errorf("only %d cases have room", promised)
	}
}

// device is what is free of a device: MiB and percents.
type device struct{ memory, cores, shares int64 }

// slots returns how many pods with a share start on the device.
func (d device) slots(s shape.Share) int64 {
	n := min(d.shares, d.memory/(s.Memory>>20))
	if s.CorePercent > 0 {
		n = min(n, d.cores/s.CorePercent)
	}
	return n
}

// For random devices and pods, the room after the ledger is never more than what is left when the
// pods have started, wherever they did. Pods that end return at least SharesReturned.
func TestSharesInLedgerNeverPromiseTooMuch(t *testing.T) {
	random := rand.New(rand.NewPCG(20261122, 1))
	share := func() shape.Share {
		return shape.Share{Memory: (1 + random.Int64N(20_000)) << 20, CorePercent: random.Int64N(4) * random.Int64N(25)}
	}
	for range 2000 {
		devices := make([]device, 1+random.IntN(4))
		for i := range devices {
			devices[i] = device{random.Int64N(81_000), random.Int64N(101), random.Int64N(11)}
		}
		p := sharing(1, share())
		room := func() (n int64) {
			for _, d := range devices {
				n += d.slots(*p.Share)
			}
			return n
		}
		before := room()
		var others []shape.PodSet
		for range random.IntN(6) {
			s, at := share(), random.IntN(len(devices))
			if devices[at].slots(s) > 0 {
				devices[at].memory -= s.Memory >> 20
				devices[at].cores -= s.CorePercent
				devices[at].shares--
				others = append(others, sharing(1, s))
			}
		}
		if left, promised := room(), before-SlotsTaken(others, p, 0); promised > left {
			t.Fatalf("the ledger promises %d of %d pods with %s, %d fit after %d other pods", promised, before, p.Share, left, len(others))
		}
		for _, other := range others {
			if after := SharesReturned(other, p); after > 0 && (other.Share.Memory < p.Share.Memory || other.Share.CorePercent < p.Share.CorePercent) {
				t.Fatalf("a pod with %s returns a place for a pod with %s", other.Share, p.Share)
			}
		}
	}
}

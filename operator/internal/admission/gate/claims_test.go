package gate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// capacityPolicy is a consumable capacity of a device: MiB of memory, or hundredths of the cores.
type capacityPolicy struct {
	value, used, byDefault int64
	minimum, maximum, step int64
	values                 []int64
}

func randomPolicy(random *rand.Rand, value int64) *capacityPolicy {
	c := &capacityPolicy{value: value, used: random.Int64N(value/2 + 1), byDefault: value, maximum: value, step: 1}
	switch random.IntN(4) {
	case 0:
		c.values = []int64{value / 8, value / 3, value / 2}
		c.byDefault = c.values[random.IntN(3)]
	case 1:
		c.minimum, c.step = random.Int64N(value/4), 1+random.Int64N(value/4)
		c.maximum, c.byDefault = value*3/4, c.minimum+c.step
	case 2:
		c.byDefault = 1 + random.Int64N(value)
	}
	return c
}

// consumed returns what kube-scheduler makes a request consume (dynamic-resource-allocation,
// consumable_capacity.go). ok is false if the device does not take the request.
func (c *capacityPolicy) consumed(request int64) (amount int64, ok bool) {
	switch {
	case request == 0:
		return c.byDefault, true
	case c.values != nil:
		for _, v := range c.values {
			if v >= request {
				return v, true
			}
		}
		return 0, false
	case request <= c.minimum:
		return c.minimum, true
	}
	amount = c.minimum + (request-c.minimum+c.step-1)/c.step*c.step
	return amount, amount <= c.maximum
}

// claimedDevice is a device that claims share.
type claimedDevice struct {
	node          int
	memory, cores *capacityPolicy // cores is nil if the driver counts none
	shares        int64           // that its other capacities leave; -1 if it has none
}

// slots returns how many claims the device takes.
func (d claimedDevice) slots(s shape.Share) (n int64) {
	n = 1 << 40
	if d.shares >= 0 {
		n = d.shares
	}
	if d.cores == nil && s.CorePercent > 0 {
		return 0
	}
	for _, row := range []struct {
		c       *capacityPolicy
		request int64
	}{{d.memory, s.Memory >> 20}, {d.cores, s.CorePercent}} {
		if row.c == nil {
			continue
		}
		amount, ok := row.c.consumed(row.request)
		if !ok {
			return 0
		}
		if amount > 0 {
			n = min(n, (row.c.value-row.c.used)/amount)
		}
	}
	return n
}

// The fit query of the sample gate claims over the recorded rules equals what kube-scheduler places,
// for random devices with policies and random claims. For pods with several devices, of which each is
// another one, it is never more.
func TestFitOfClaimsEqualsPlacement(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	const cases = 80
	random := rand.New(rand.NewPCG(20261125, 2))
	clusters := make([][]claimedDevice, cases)
	var metrics shareMetrics
	for c := range clusters {
		cluster := fmt.Sprintf("c%03d", c)
		metrics.addNodes(cluster, 3)
		for i := range random.IntN(6) {
			d := claimedDevice{node: random.IntN(3), memory: randomPolicy(random, []int64{81_559, 46_068, 15_360}[random.IntN(3)]), shares: -1}
			if random.IntN(5) > 0 {
				d.cores = randomPolicy(random, 100)
			}
			if random.IntN(5) == 0 {
				d.shares = random.Int64N(4)
			}
			clusters[c] = append(clusters[c], d)
			id := []string{"cluster", cluster, "node", fmt.Sprint(d.node), "uuid", fmt.Sprint(i), "model", model, "provider", "dra", "dimension"}
			if d.shares >= 0 {
				metrics.add(float64(d.shares)+2, "plimsoll_device_share_capacity", append(id, "shares")...)
				metrics.add(2, "plimsoll_device_share_allocated", append(id, "shares")...)
			}
			for dimension, row := range map[string]struct {
				c    *capacityPolicy
				unit float64
			}{"memory": {d.memory, 1 << 20}, "cores": {d.cores, 0.01}} {
				if row.c == nil {
					continue
				}
				metrics.add(float64(row.c.value)*row.unit, "plimsoll_device_share_capacity", append(id, dimension)...)
				metrics.add(float64(row.c.used)*row.unit, "plimsoll_device_share_allocated", append(id, dimension)...)
				bounds := map[string]int64{"default": row.c.byDefault, "min": row.c.minimum, "max": row.c.maximum, "step": row.c.step}
				if row.c.values != nil {
					bounds = map[string]int64{"default": row.c.byDefault, "value0": row.c.values[0], "value1": row.c.values[1], "value2": row.c.values[2]}
				}
				for bound, v := range bounds {
					metrics.add(float64(v)*row.unit, "plimsoll_device_share_policy", append(id, dimension, "bound", bound)...)
				}
			}
		}
	}
	fitOf := metrics.fitOf(t, "claims")
	compared, withRoom := 0, 0
	for range 60 {
		share := shape.Share{Claimed: true, MemoryPercent: 100, Memory: []int64{0, 1, 500, 3000, 10_000, 27_186, 40_000, 81_559}[random.IntN(8)] << 20, CorePercent: []int64{0, 0, 1, 10, 13, 30, 33, 50, 70, 100}[random.IntN(10)]}
		if share.Memory > 0 {
			share.MemoryPercent = 0
		}
		p := shape.PodSet{Resource: "nvidia.com/gpu", Model: model, DevicesPerPod: 1 + int64(random.IntN(2)*random.IntN(3)), Pods: 1, Share: &share}
		got, expr := fitOf(p)
		for c, devices := range clusters {
			want, isExact := 0, p.DevicesPerPod == 1
			for node := range 3 {
				var slots []int
				for _, d := range devices {
					if d.node == node {
						slots = append(slots, int(d.slots(share)))
					}
				}
				want += podsOnDifferentDevices(slots, int(p.DevicesPerPod))
			}
			if fit := int(got[fmt.Sprintf("c%03d", c)]); isExact && fit != want || fit > want {
				for _, d := range devices {
					t.Logf("node %d, memory %+v, cores %+v, shares %d: %d slots", d.node, d.memory, d.cores, d.shares, d.slots(share))
				}
				t.Fatalf("%d devices with %s for each pod: the query fits %d pods, kube-scheduler %d\n%s", p.DevicesPerPod, share, fit, want, expr)
			}
			compared++
			if want > 0 {
				withRoom++
			}
		}
	}
	if withRoom < compared/4 {
		t.Errorf("only %d of %d cases have room", withRoom, compared)
	}
}

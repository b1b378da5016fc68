//go:build !race

package collector

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// The tests of this file are much slower with the race detector. Others test the same goroutines with it.

// For random holders and readings, the values of all pods never exceed the device. This
// holds for Plimsoll's metrics of pods and for quantities of dcgm-exporter.
func TestAttributionNeverExceedsDevice(t *testing.T) {
	for _, how := range []Attribution{BySplit, ByProcess} {
		t.Run(string(how), func(t *testing.T) {
			f := setup(t)
			f.cfg.Attribution = how
			const seed = 20261121
			random := rand.New(rand.NewPCG(seed, 1))
			readings, first := map[string]device.Reading{}, map[string]float64{}
			energy := map[string]float64{}
			f.cfg.PodOf = func(pid int) (string, string, bool) {
				return fmt.Sprintf("ns%d", pid%2), fmt.Sprintf("p%d", pid%3), pid%7 > 0
			}
			f.source.override = func(d device.Device, r *device.Reading) {
				for field := range device.NumFields {
					r.Set(field, random.Float64())
				}
				energy[d.UUID] += 1e6 * random.Float64()
				r.Set(device.TotalEnergy, energy[d.UUID])
				r.Set(device.PowerUsage, 700*random.Float64())
				r.Set(device.GPUUtil, 100*random.Float64())
				r.Processes = &device.Processes{Memory: map[int]float64{}, Busy: map[int]float64{}}
				for range random.IntN(6) {
					pid := random.IntN(100)
					r.Processes.Memory[pid], r.Processes.Busy[pid] = 1e6*random.Float64(), 60*random.Float64()
				}
				readings[d.UUID] = *r
			}
			for round := range 50 {
				f.kubelet.mu.Lock()
				clear(f.kubelet.holdings)
				for range random.IntN(12) {
					container := fmt.Sprintf("ns%d/p%d/c%d", random.IntN(2), random.IntN(3), random.IntN(2))
					for range 1 + random.IntN(4) {
						id := uuid(random.IntN(3))
						if random.IntN(3) > 0 {
							id += fmt.Sprintf("::%d", random.IntN(4))
						}
						f.kubelet.holdings[container] = append(f.kubelet.holdings[container], id)
					}
				}
				f.kubelet.mu.Unlock()
				families, text := f.collect(t)
				if round == 0 {
					for u, mj := range energy {
						first[u] = mj
					}
				}
				check := func(name, label string, limit func(r device.Reading, u string) float64) {
					for u, sum := range sumByDevice(families[name], label) {
						if maximum := limit(readings[u], u); sum > maximum*(1+1e-9) {
							t.Fatalf("seed %d, round %d: %s of %s is %g for all pods and %g for the device:\n%s", seed, round, name, u, sum, maximum, text)
						}
					}
				}
				for _, field := range dcgmFields {
					if field.isQuantity() {
						check(field.name, "UUID", func(r device.Reading, _ string) float64 { v, _ := r.Get(field.field); return v })
					}
				}
				check("plimsoll_pod_device_energy_joules_total", "uuid", func(_ device.Reading, u string) float64 { return (energy[u] - first[u]) / 1000 })
				for name, of := range map[string]struct {
					field device.Field
					scale float64
				}{"plimsoll_pod_device_memory_used_bytes": {device.FBUsed, 1 << 20}, "plimsoll_pod_device_utilization_ratio": {device.GPUUtil, 0.01}, "plimsoll_pod_device_power_watts": {device.PowerUsage, 1}} {
					check(name, "uuid", func(r device.Reading, _ string) float64 { v, _ := r.Get(of.field); return v * of.scale })
				}
			}
		})
	}
}

//go:build !race

package collector

import (
	"fmt"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// boardQuery is a query of a published dashboard or autoscaler, with the number of series
// that it returns on each kind of node, and the value of the first one.
type boardQuery struct {
	query                           string
	exclusive, timeSliced, mps, mig int
	value                           float64 // 0: not checked
}

// Each node has eight devices. On the exclusive node each has a pod. With time-slicing each
// has two pods, with MPS three. On the MIG node, device 0 has two instances with a pod each,
// and each of the others has a pod.
var boardQueries = []boardQuery{
	// Grafana's dashboard 12239.
	{query: `DCGM_FI_DEV_GPU_TEMP{instance=~".+", gpu=~".+"}`, exclusive: 8, timeSliced: 16, mps: 24, mig: 9},
	{query: `avg(DCGM_FI_DEV_GPU_TEMP{instance=~".+", gpu=~".+"})`, exclusive: 1, timeSliced: 1, mps: 1, mig: 1, value: 50},
	{query: `DCGM_FI_DEV_POWER_USAGE{instance=~".+", gpu=~".+"}`, exclusive: 8, timeSliced: 8, mps: 8, mig: 8},
	{query: `sum(DCGM_FI_DEV_POWER_USAGE{instance=~".+", gpu=~".+"})`, exclusive: 1, timeSliced: 1, mps: 1, mig: 1, value: 8 * 300},
	{query: `DCGM_FI_DEV_SM_CLOCK{instance=~".+", gpu=~".+"} * 1000000`, exclusive: 8, timeSliced: 16, mps: 24, mig: 9},
	{query: `DCGM_FI_DEV_GPU_UTIL{instance=~".+", gpu=~".+"}`, exclusive: 8, timeSliced: 16, mps: 24, mig: 7},
	{query: `DCGM_FI_DEV_FB_USED{instance=~".+", gpu=~".+"}`, exclusive: 8, timeSliced: 8, mps: 8, mig: 9},
	{query: `DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~".+", gpu=~".+"}`, exclusive: 8, timeSliced: 16, mps: 24, mig: 9},
	// KEDA's trigger in Microsoft's guide to autoscaling GPU workloads, by pod.
	{query: `avg(DCGM_FI_DEV_GPU_UTIL{pod=~"train-.*"})`, exclusive: 1, timeSliced: 1, mps: 1, mig: 1, value: 40},
	{query: `avg(DCGM_FI_DEV_GPU_UTIL{namespace="ml"})`, exclusive: 1, timeSliced: 1, mps: 1, mig: 1, value: 40},
	{query: `avg by (pod) (DCGM_FI_DEV_GPU_UTIL{pod!=""})`, exclusive: 8, timeSliced: 16, mps: 24, mig: 7},
	// OpenCost's usage and inventory of GPUs (modules/prometheus-source/pkg/prom).
	{query: `avg(avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{container!=""}[5m])) by (container, pod, namespace)`, exclusive: 8, timeSliced: 16, mps: 24, mig: 9},
	{query: `avg(avg_over_time(DCGM_FI_DEV_DEC_UTIL{container!=""}[5m])) by (container, pod, namespace, device, modelName, UUID)`, exclusive: 8, timeSliced: 16, mps: 24, mig: 7},
	// Expressions over several metrics of a device, as on most boards.
	{query: `DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)`, exclusive: 8, timeSliced: 8, mps: 8, mig: 9},
	{query: `DCGM_FI_DEV_FB_USED / DCGM_FI_DEV_FB_TOTAL`, exclusive: 8, timeSliced: 8, mps: 8, mig: 9},
	{query: `DCGM_FI_DEV_FB_TOTAL - DCGM_FI_DEV_FB_USED - DCGM_FI_DEV_FB_FREE - DCGM_FI_DEV_FB_RESERVED`, exclusive: 8, timeSliced: 8, mps: 8, mig: 9},
	{query: `DCGM_FI_DEV_POWER_USAGE / DCGM_FI_DEV_ENFORCED_POWER_LIMIT`, exclusive: 8, timeSliced: 8, mps: 8, mig: 8},
	{query: `sum(DCGM_FI_DEV_FB_USED)`, exclusive: 1, timeSliced: 1, mps: 1, mig: 1, value: 8 * 700},
	{query: `sum(plimsoll_pod_device_power_watts)`, exclusive: 1, timeSliced: 1, mps: 1, mig: 1},
	{query: `count(plimsoll_pod_device_memory_used_bytes)`, exclusive: 1, timeSliced: 1, mps: 1, mig: 1},
}

// readBoardFields reports the fields of a device, or those that NVML reports for a MIG
// instance or for a device in MIG mode.
func readBoardFields(partitioned bool) func(device.Device, *device.Reading) {
	return func(d device.Device, r *device.Reading) {
		set := func(values map[device.Field]float64) {
			for f, v := range values {
				r.Set(f, v)
			}
		}
		activity := map[device.Field]float64{device.EngineActive: 0.4, device.TensorActive: 0.2}
		if d.Instance != nil {
			set(map[device.Field]float64{device.FBUsed: 350, device.FBFree: 40_000, device.FBTotal: 40_400, device.FBReserved: 50})
			set(activity)
			return
		}
		set(map[device.Field]float64{device.GPUTemp: 50, device.SMClock: 1980, device.PowerUsage: 300, device.PowerLimit: 700,
			device.FBUsed: 700, device.FBFree: 80_000, device.FBTotal: 81_000, device.FBReserved: 300})
		if !partitioned || d.Index > 0 {
			set(activity)
			set(map[device.Field]float64{device.GPUUtil: 40, device.DecUtil: 0})
			return
		}
		r.MIG = true
		for gi := 1; gi <= 2; gi++ {
			part := d
			part.UUID, part.Instance = migUUID(0, gi, 0), &device.Instance{Parent: d.UUID, Profile: "3g.40gb", GI: gi}
			r.Instances = append(r.Instances, part)
		}
	}
}

// boardNode returns the series of a node whose devices are each shared by a number of pods,
// in the syntax of promqltest. If partitioned is true, device 0 is in MIG mode.
func boardNode(t *testing.T, podsPerDevice int, partitioned bool) string {
	t.Helper()
	f := setup(t)
	f.source.override = readBoardFields(partitioned)
	hold := func(id string) {
		f.kubelet.holdings[fmt.Sprintf("ml/train-%d/main", len(f.kubelet.holdings))] = []string{id}
	}
	for i := range 8 {
		if partitioned && i == 0 {
			hold(migUUID(0, 1, 0))
			hold(migUUID(0, 2, 0))
			continue
		}
		for replica := range podsPerDevice {
			id := uuid(i)
			if podsPerDevice > 1 {
				id = fmt.Sprintf("%s::%d", id, replica)
			}
			hold(id)
		}
	}
	_, text := f.collect(t)
	var load strings.Builder
	for line := range strings.Lines(text) {
		if name, rest, ok := strings.Cut(line, "{"); ok && !strings.HasPrefix(line, "#") {
			series, v, _ := strings.Cut(rest, "} ")
			fmt.Fprintf(&load, "  %s{instance=\"node-1:9400\",%s} %s\n", name, series, strings.TrimSpace(v))
		}
	}
	return load.String()
}

func TestPublishedQueriesLoseNoDeviceAndNoPod(t *testing.T) {
	for kind, node := range map[string]struct {
		load string
		want func(boardQuery) int
	}{
		"exclusive":   {boardNode(t, 1, false), func(q boardQuery) int { return q.exclusive }},
		"time-sliced": {boardNode(t, 2, false), func(q boardQuery) int { return q.timeSliced }},
		"MPS":         {boardNode(t, 3, false), func(q boardQuery) int { return q.mps }},
		"MIG":         {boardNode(t, 1, true), func(q boardQuery) int { return q.mig }},
	} {
		for _, q := range boardQueries {
			t.Run(kind+"/"+q.query, func(t *testing.T) {
				result := evaluate(t, node.load, q.query)
				if len(result) != node.want(q) {
					t.Fatalf("%d series, want %d", len(result), node.want(q))
				}
				if q.value != 0 && result[0].F != q.value {
					t.Errorf("%g, want %g", result[0].F, q.value)
				}
			})
		}
	}
}

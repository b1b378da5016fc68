package gate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/promql/promqltest"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// The fit query of the sample gate kai equals the number of pods that KAI Scheduler places on random
// devices: it counts a fraction in whole MiB, rounded down. For pods with several devices it is never
// more than that.
func TestFitOfFractionsEqualsPlacement(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	random := rand.New(rand.NewPCG(20261125, 3))
	ratios := []float64{0.01, 0.125, 0.25, 0.29, 0.3, 0.333, 1. / 3, 0.3334, 0.5, 2. / 3, 0.9, 1}
	withRoom := 0
	for range 60 {
		script, devices := "load 1m\n", map[int][][2]int64{} // capacity and free MiB, by node
		for i := range random.IntN(6) {
			capacity := 10_000 + 100*random.Int64N(800)
			free, node := capacity-random.Int64N(2)*random.Int64N(capacity), random.IntN(2)
			devices[node] = append(devices[node], [2]int64{capacity, free})
			id := fmt.Sprintf(`cluster="c",node="%d",uuid="%d",model=%q,provider="kai",dimension="memory"`, node, i, model)
			script += fmt.Sprintf("  device_dimension:plimsoll_share_capacity:placeable{%s} %d\n  device_dimension:plimsoll_free_share:placeable{%s} %d\n", id, capacity<<20, id, free<<20)
		}
		share := shape.Share{MemoryRatio: ratios[random.IntN(len(ratios))]}
		if random.IntN(3) == 0 {
			share = shape.Share{Memory: (1 + random.Int64N(60_000)) << 20}
		}
		k := 1 + random.Int64N(2)
		want := int64(0)
		for _, of := range devices {
			slots := int64(0)
			for _, d := range of {
				request := share.Memory >> 20
				if request == 0 {
					request = int64(share.MemoryRatio * float64(d[0]))
				}
				if n := d[1] / request; k == 1 {
					slots += n
				} else {
					slots += min(n, 1)
				}
			}
			want += slots / k
		}
		expr, err := sampleFit(t, "kai").Render(shape.Facts{}.Vars(shape.PodSet{Resource: "nvidia.com/gpu", Model: model, DevicesPerPod: k, Pods: 1, Share: &share}))
		if err != nil {
			t.Fatal(err)
		}
		script += "\neval instant at 0m " + expr + "\n"
		if len(devices) > 0 {
			script += fmt.Sprintf("  {cluster=\"c\"} %d\n", want)
		}
		promqltest.RunTest(t, script, promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery))
		if want > 0 {
			withRoom++
		}
	}
	if withRoom < 20 {
		t.Errorf("only %d cases have room", withRoom)
	}
}

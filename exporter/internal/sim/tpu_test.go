package sim

import (
	"strings"
	"testing"
	"time"
)

func TestScenarioTPUSlice(t *testing.T) {
	n := startScenario(t, "tpu-slice")
	n.kubelet.Allocatable("google.com/tpu", "0", "1", "2", "3", "4", "5", "6", "7")
	n.kubelet.Hold("team-a/train-0/main", "google.com/tpu", "0", "1", "2", "3", "4", "5", "6", "7")
	n.scrapeAt(0)
	text := n.scrapeAt(60 * time.Second)
	expectSeries(t, text,
		`duty_cycle{accelerator_id="n-7",container="main",make="cloud-tpu",model="tpu-v6e-slice",namespace="team-a",pod="train-0",tpu_topology="2x4"} 93`,
		`duty_cycle_node{accelerator_id="n-0",make="cloud-tpu",model="tpu-v6e-slice",tpu_topology="2x4"} 93`,
		`memory_total_node{accelerator_id="n-0",make="cloud-tpu",model="tpu-v6e-slice",tpu_topology="2x4"} 3.4359738368e+10`,
		`accelerator_request{container="main",namespace="team-a",pod="train-0",resource_name="google.com/tpu"} 8`,
		`plimsoll_node_devices{node="n",resource="google.com/tpu",model="tpu-v6e-slice",state="allocated"} 8`,
		`plimsoll_node_devices{node="n",resource="google.com/tpu",model="tpu-v6e-slice",state="free"} 0`,
		`plimsoll_device_stalled_seconds{node="n",uuid="TPU-0000:00:09.0",gpu="5",model="tpu-v6e-slice"} 0`,
		`plimsoll_device_idle_allocated_seconds{node="n",uuid="TPU-0000:00:09.0",gpu="5",model="tpu-v6e-slice"} 0`,
	)
	for _, absent := range []string{"DCGM_FI_", "plimsoll_device_power_headroom_watts"} {
		if strings.Contains(text, absent) {
			t.Errorf("a TPU has the metric %s", absent)
		}
	}
	n.scrapeAt(250 * time.Second)
	expectSeries(t, n.scrapeAt(270*time.Second),
		`plimsoll_device_stalled_seconds{node="n",uuid="TPU-0000:00:09.0",gpu="5",model="tpu-v6e-slice"} 30`,
		`plimsoll_device_queued_programs{node="n",uuid="TPU-0000:00:09.0",gpu="5",model="tpu-v6e-slice"} 2`,
		`duty_cycle_node{accelerator_id="n-5",make="cloud-tpu",model="tpu-v6e-slice",tpu_topology="2x4"} 0`,
	)
}

package sim

import (
	"strings"
	"testing"
	"time"
)

func TestScenarioAMDNode(t *testing.T) {
	n := startScenario(t, "amd-node")
	ids := []string{"0000:10:00.0", "0000:11:00.0", "0000:12:00.0", "0000:13:00.0", "0000:14:00.0", "0000:15:00.0", "0000:16:00.0", "0000:17:00.0"}
	n.kubelet.Allocatable("amd.com/gpu", ids...)
	n.kubelet.Hold("team-a/train-0/main", "amd.com/gpu", ids[:4]...)
	n.scrapeAt(0)
	text := n.scrapeAt(60 * time.Second)
	const gpu5 = `node="n",uuid="GPU-5a641a61ea673890",gpu="5",model="AMD_Instinct_MI300X_OAM"`
	expectSeries(t, text,
		`plimsoll_node_devices{node="n",resource="amd.com/gpu",model="AMD_Instinct_MI300X_OAM",state="allocatable"} 8`,
		`plimsoll_node_devices{node="n",resource="amd.com/gpu",model="AMD_Instinct_MI300X_OAM",state="allocated"} 4`,
		`plimsoll_node_devices{node="n",resource="amd.com/gpu",model="AMD_Instinct_MI300X_OAM",state="free"} 4`,
		`plimsoll_node_largest_free_group{node="n",resource="amd.com/gpu",model="AMD_Instinct_MI300X_OAM"} 4`,
		`plimsoll_device_memory_total_bytes{`+gpu5+`} 2.06158430208e+11`,
	)
	if n := strings.Count(text, "plimsoll_device_busy_ratio{"); n != 8 {
		t.Errorf("%d devices have a busy ratio", n)
	}
	if strings.Contains(text, "DCGM_FI_") {
		t.Error("an AMD GPU has metrics of dcgm-exporter")
	}
	if n := strings.Count(text, "plimsoll_device_owner_info{"); n != 4 {
		t.Errorf("%d of 4 allocated devices have an owner", n)
	}
}

package collector

import (
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// Without what is allocatable nothing is counted as free, and pods keep their devices.
func TestKubeletThatDoesNotTellWhatIsAllocatable(t *testing.T) {
	f := setup(t)
	f.kubelet.held["team-a/train/main"] = []string{uuid(0)}
	f.kubelet.uncounted = true
	families, text := f.collect(t)
	if families["plimsoll_node_devices"] != nil || value(t, families, "plimsoll_exporter_mapped_devices", "node", "node-1") != 1 {
		t.Errorf("devices are counted:\n%s", text)
	}
	if got := value(t, families, "plimsoll_exporter_unmapped_devices", "reason", "kubelet does not tell what is allocatable"); got != 7 {
		t.Errorf("%v devices are not mapped, want 7", got)
	}
	if !strings.Contains(text, `container="main",namespace="team-a",pod="train"} 10`) {
		t.Errorf("the pod lost its device:\n%s", text)
	}
}

func TestKubeletThatIsNotAsked(t *testing.T) {
	f := setup(t)
	pods, err := podmap.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	f.pods = pods
	families, _ := f.collect(t)
	if got := value(t, families, "plimsoll_exporter_unmapped_devices", "reason", "kubelet is not asked"); got != 8 {
		t.Errorf("%v devices are not mapped, want 8", got)
	}
}

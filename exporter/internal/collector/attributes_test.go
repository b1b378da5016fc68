package collector

import (
	"regexp"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

func TestAttributesIncludePodMetadata(t *testing.T) {
	f := setup(t)
	api := &fakePods{pods: map[string]podmap.Meta{"ml/train-0": {UID: "u-1", OwnerKind: "JobSet", OwnerName: "train",
		Labels: map[string]string{"app.kubernetes.io/name": "llm", "team": "a\"b", "pod": "taken", "gpu": "taken", "xid": "taken", "err_code": "taken", "window_size_in_ms": "taken", "clock_event": "taken", "7up": "x", "secret": "no"}}}}
	f.cfg.Pods, f.cfg.Owners = api, true
	f.kubelet.holdings["ml/train-0/main"] = []string{uuid(0)}
	f.kubelet.holdings["ml/unknown/main"] = []string{uuid(1)}
	start := `DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-00000000-0000-4000-8000-000000000000",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node-1",DCGM_FI_DRIVER_VERSION="580.1",`
	for _, tc := range []struct {
		name     string
		uid      bool
		patterns []string
		want     string
	}{
		{"UID only", true, nil, `container="main",namespace="ml",pod="train-0",pod_uid="u-1"`},
		{"UID and all labels", true, []string{""}, `_7up="x",app_kubernetes_io_name="llm",container="main",namespace="ml",pod="train-0",pod_uid="u-1",secret="no",team="a\"b"`},
		{"allowlist", false, []string{"^app\\.", "^team$", "^gpu$"}, `app_kubernetes_io_name="llm",container="main",namespace="ml",pod="train-0",team="a\"b"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f.cfg.Labels = Labels{PodUID: tc.uid}
			if tc.patterns != nil {
				var err error
				if f.cfg.Labels.PodLabel, err = ParseLabelAllowlist(tc.patterns); err != nil {
					t.Fatal(err)
				}
			}
			_, text := f.collect(t)
			if !strings.Contains(text, start+tc.want+"} 10\n") {
				t.Errorf("missing %s\n%s", tc.want, text)
			}
			if !strings.Contains(text, `container="main",namespace="ml",pod="unknown"} 11`+"\n") {
				t.Error("missing the series of a pod that the API server does not know")
			}
		})
	}
	families, text := f.collect(t)
	if value(t, families, "plimsoll_pod_owner_info", "namespace", "ml", "pod", "train-0", "pod_uid", "u-1", "owner_kind", "JobSet", "owner_name", "train") != 1 ||
		len(families["plimsoll_pod_owner_info"].Metric) != 1 || value(t, families, "plimsoll_exporter_api_server_reachable") != 1 {
		t.Errorf("owners:\n%s", text)
	}
	api.unreachable = true
	if families, _ = f.collect(t); value(t, families, "plimsoll_exporter_api_server_reachable") != 0 || families["plimsoll_pod_owner_info"] == nil {
		t.Error("an unreachable API server is not reported, or its last metadata was dropped")
	}
	if _, err := ParseLabelAllowlist([]string{"("}); err == nil {
		t.Error("an invalid pattern is accepted")
	}
}

func TestPodMetricsAbsentWithoutAPIServer(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["ml/train-0/main"] = []string{uuid(0)}
	if families, _ := f.collect(t); families["plimsoll_exporter_api_server_reachable"] != nil || families["plimsoll_pod_owner_info"] != nil {
		t.Error("metrics of an API server that is not queried")
	}
}

// Prometheus rejects a scrape in which a series has a label twice. Pods may have labels
// with the names of any label in use.
func TestPodLabelsNeverDuplicateLabels(t *testing.T) {
	f := setup(t)
	f.source.xids = []device.XID{{UUID: uuid(0), Code: 79}}
	all := map[string]string{"": "no name"}
	_, plain := f.collect(t)
	for _, name := range regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="`).FindAllStringSubmatch(plain, -1) {
		all[name[1]] = "taken"
	}
	f.cfg.Pods = &fakePods{pods: map[string]podmap.Meta{"ml/train-0": {Labels: all}}}
	f.cfg.Labels = Labels{PodLabel: func(string) bool { return true }}
	f.kubelet.holdings["ml/train-0/main"] = []string{uuid(0)}
	f.source.xids = []device.XID{{UUID: uuid(0), Code: 79}}
	_, text := f.collect(t)
	for line := range strings.Lines(text) {
		seen := map[string]bool{}
		for _, name := range regexp.MustCompile(`[{,]([a-zA-Z_][a-zA-Z0-9_]*)="`).FindAllStringSubmatch(line, -1) {
			if seen[name[1]] {
				t.Fatalf("label %s occurs twice in %s", name[1], line)
			}
			seen[name[1]] = true
		}
	}
}

// If the exporter is scraped with honor_labels: true, its labels replace those of the target. A pod
// must not move its series to another cluster or out of an alert.
func TestPodLabelsNeverReplaceTargetLabels(t *testing.T) {
	for _, oldNamespace := range []bool{false, true} {
		f := setup(t)
		all := map[string]string{"team": "ml"}
		for _, name := range []string{"cluster", "job", "instance", "node", "namespace", "pod", "container"} {
			all[name] = "forged"
		}
		f.cfg.Pods = &fakePods{pods: map[string]podmap.Meta{"ml/train-0": {Labels: all}}}
		f.cfg.Labels = Labels{PodLabel: func(string) bool { return true }, OldNamespace: oldNamespace}
		f.kubelet.holdings["ml/train-0/main"] = []string{uuid(0)}
		if _, text := f.collect(t); strings.Contains(text, "forged") || !strings.Contains(text, `team="ml"`) {
			t.Errorf("old names %t: a pod replaces labels, or has none:\n%.2000s", oldNamespace, text)
		}
	}
}

package collector

import (
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// told is an API server's word.
type told struct {
	pods map[string]podmap.Meta
	away bool
}

func (a *told) Pod(namespace, name string) (podmap.Meta, bool) {
	m, ok := a.pods[namespace+"/"+name]
	return m, ok
}
func (a *told) Reachable() bool { return !a.away }

func TestPodMetadataIsAmongTheAttributes(t *testing.T) {
	f := setup(t)
	api := &told{pods: map[string]podmap.Meta{"ml/train-0": {UID: "u-1", OwnerKind: "JobSet", OwnerName: "train",
		Labels: map[string]string{"app.kubernetes.io/name": "llm", "team": "a\"b", "pod": "taken", "gpu": "taken", "xid": "taken", "err_code": "taken", "window_size_in_ms": "taken", "clock_event": "taken", "7up": "x", "secret": "no"}}}}
	f.cfg.Pods, f.cfg.Owners = api, true
	f.kubelet.held["ml/train-0/main"] = []string{uuid(0)}
	f.kubelet.held["ml/unknown/main"] = []string{uuid(1)}
	start := `DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aaaa",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node-1",DCGM_FI_DRIVER_VERSION="580.1",`
	for _, c := range []struct {
		uid      bool
		patterns []string
		want     string
	}{
		{true, nil, `container="main",namespace="ml",pod="train-0",pod_uid="u-1"`},
		{true, []string{""}, `_7up="x",app_kubernetes_io_name="llm",container="main",namespace="ml",pod="train-0",pod_uid="u-1",secret="no",team="a\"b"`},
		{false, []string{"^app\\.", "^team$", "^gpu$"}, `app_kubernetes_io_name="llm",container="main",namespace="ml",pod="train-0",team="a\"b"`},
	} {
		f.cfg.Labels = Labels{PodUID: c.uid}
		if c.patterns != nil {
			var err error
			if f.cfg.Labels.PodLabel, err = Allowlist(c.patterns); err != nil {
				t.Fatal(err)
			}
		}
		_, text := f.collect(t)
		if !strings.Contains(text, start+c.want+"} 10\n") {
			t.Errorf("%v: missing %s\n%s", c.patterns, c.want, text)
		}
		if !strings.Contains(text, `container="main",namespace="ml",pod="unknown"} 11`+"\n") {
			t.Errorf("%v: a pod that the API server does not know", c.patterns)
		}
	}
	families, text := f.collect(t)
	if value(t, families, "plimsoll_pod_owner_info", "namespace", "ml", "pod", "train-0", "pod_uid", "u-1", "owner_kind", "JobSet", "owner_name", "train") != 1 ||
		len(families["plimsoll_pod_owner_info"].Metric) != 1 || value(t, families, "plimsoll_exporter_api_server_reachable") != 1 {
		t.Errorf("owners:\n%s", text)
	}
	api.away = true
	if families, _ = f.collect(t); value(t, families, "plimsoll_exporter_api_server_reachable") != 0 || families["plimsoll_pod_owner_info"] == nil {
		t.Error("an API server that is away is not told, or what it said is forgotten")
	}
	if _, err := Allowlist([]string{"("}); err == nil {
		t.Error("a pattern that is none")
	}
}

func TestWithoutAnAPIServerNothingIsSaidOfIt(t *testing.T) {
	f := setup(t)
	f.kubelet.held["ml/train-0/main"] = []string{uuid(0)}
	if families, _ := f.collect(t); families["plimsoll_exporter_api_server_reachable"] != nil || families["plimsoll_pod_owner_info"] != nil {
		t.Error("metrics of an API server that is not asked")
	}
}

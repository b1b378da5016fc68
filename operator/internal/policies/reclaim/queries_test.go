package reclaim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
)

// An exporter whose collections fail may still serve the utilization of an earlier one, and the device may be
// busy now. The cluster stays fresh by its other nodes.
func TestDefaultIdleQueryNeedsTrustedNode(t *testing.T) {
	storage := promqltest.LoadedStorage(t, `
load 1m
  device:plimsoll_idle_since_timestamp_seconds:min{cluster="c",node="trusted",uuid="a",namespace="ml",owner_kind="Job",owner_name="x"} 0x60
  device:plimsoll_idle_since_timestamp_seconds:min{cluster="c",node="frozen",uuid="b",namespace="ml",owner_kind="Job",owner_name="x"} 0x60
  device:plimsoll_idle_since_timestamp_seconds:min{cluster="d",node="trusted",uuid="a",namespace="ml",owner_kind="Job",owner_name="x"} 0x60
  device:plimsoll_utilization:ratio{cluster="c",node="trusted",uuid="a"} 0x60
  device:plimsoll_utilization:ratio{cluster="c",node="frozen",uuid="b"} 0x60
  device:plimsoll_utilization:ratio{cluster="d",node="trusted",uuid="a"} 0x60
  node:plimsoll_sample_timestamp_seconds:trusted{cluster="c",node="trusted"} 0+60x60
`)
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	expr := strings.ReplaceAll(reclaim.IdleQueryOf(&v1alpha1.ReclaimPolicySpec{}), "$cluster_label", "cluster")
	query, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(3600, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result, err := query.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`c/trusted/a 1h0m0s`}, devicesOf(result)); diff != "" {
		t.Errorf("idle devices (-want +got):\n%s", diff)
	}
}

// devicesOf returns the cluster, node, UUID and value of each sample.
func devicesOf(samples promql.Vector) (devices []string) {
	for _, s := range samples {
		devices = append(devices, strings.Join([]string{s.Metric.Get("cluster"), s.Metric.Get("node"), s.Metric.Get("uuid")}, "/")+" "+time.Duration(s.F*float64(time.Second)).String())
	}
	return devices
}

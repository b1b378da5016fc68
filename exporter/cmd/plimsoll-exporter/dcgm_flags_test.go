package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestDCGMExporterFlagsKeepTheirMeaning(t *testing.T) {
	o, err := parse(t, "-k=false", "-n", "--log-format=json", "-collect-interval=1500", "--debug=false")
	if err != nil {
		t.Fatal(err)
	}
	if o.kubernetes || !o.labels.NoHostname || o.logFormat != "json" || o.interval != 1500 || o.debug {
		t.Errorf("%+v", o)
	}
}

func TestLastOccurrenceOfFlagWins(t *testing.T) {
	o, err := parse(t, "-c", "5000", "-k", "--debug", "-nc2000", "--kubernetes=false", "--no-debug", "-collect-interval=1500", "-n", "--nvidia-resource-names=a", "--nvidia-resource-names=b")
	if err != nil {
		t.Fatal(err)
	}
	if o.interval != 1500 || o.kubernetes || o.debug || !o.labels.NoHostname || !slices.Equal(o.resourceNames, []string{"a", "b"}) {
		t.Errorf("%+v", o)
	}
	if _, err := parse(t, "-c", "5000", "-c", "x"); err == nil {
		t.Error("an invalid last value is accepted")
	}
}

func TestIgnoredFlagsAreLoggedOnce(t *testing.T) {
	t.Setenv("DCGM_EXPORTER_CPU_DEVICES_STR", "f")
	o, err := parse(t, "-r", "localhost:5555")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	o.ignored.warn(slog.New(slog.NewTextHandler(&out, nil)))
	if text := out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "--remote-hostengine-info") || !strings.Contains(text, "--cpu-devices") {
		t.Errorf("%s", text)
	}
}

// The command lines of dcgm-exporter's chart and image select the same metrics as there,
// although this exporter's image does not contain the counter files. The default file has
// 26 fields. The driver version is a label, so 25 metrics remain.
func TestCommandLineOfDCGMExporterChart(t *testing.T) {
	for _, args := range []string{"-f /etc/dcgm-exporter/default-counters.csv", "-f /etc/dcgm-exporter/dcp-metrics-included.csv -m none -k=true", "", "-f all"} {
		p := start(t, command(t, append(strings.Fields(args), "--source=sim")...))
		text := p.waitFor("/metrics", http.StatusOK, "DCGM_FI_DEV_GPU_UTIL{")
		n := len(regexp.MustCompile(`(?m)^# TYPE DCGM_`).FindAllString(text, -1))
		for _, optional := range []string{"DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_POWER_MGMT_LIMIT", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_FB_USED_PERCENT"} {
			if all := args == "-f all"; strings.Contains(text, optional+"{") != all || (n != 25) != all {
				t.Errorf("%q: %d metrics, %s is exported: %t", args, n, optional, !all)
			}
		}
		if !strings.Contains(text, "plimsoll_exporter_mapped_devices{") {
			t.Errorf("%q: Plimsoll's metrics are missing", args)
		}
	}
}

// dcgm-exporter's image contains a counter file with the names of its first version.
func TestCounterFileOfFirstVersion(t *testing.T) {
	p := start(t, command(t, "--source=sim", "-f", "/etc/dcgm-exporter/1.x-compatibility-metrics.csv"))
	text := p.waitFor("/metrics", http.StatusOK, "dcgm_gpu_utilization{")
	if n := len(regexp.MustCompile(`(?m)^# TYPE dcgm_`).FindAllString(text, -1)); n != 20 || strings.Contains(text, "DCGM_FI_DEV_GPU_UTIL{") {
		t.Errorf("%d metrics:\n%.500s", n, text)
	}
}

// The default metrics in each dialect. The simulated devices have the state of the vGPU
// license, which is 0.
func TestDialectsOfDefaultMetrics(t *testing.T) {
	for dialect, want := range map[string][]string{
		"legacy": {`DCGM_FI_DEV_FB_USED{`, `,Hostname="node-1"`, "# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter"},
		"4.8":    {`DCGM_FI_DEV_FB_USED{`, `,hostname="node-1"`, "# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL gauge"},
		"4.9":    {`DCGM_FI_DEV_FB_USED_BYTES{`, `,hostname="node-1"`, "# TYPE DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND gauge", "DCGM_FI_DEV_FB_CAPACITY_BYTES{"},
	} {
		p := start(t, command(t, "--source=sim", "--compat="+dialect))
		text := p.waitFor("/metrics", http.StatusOK, want[0])
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %s is missing in\n%.1000s", dialect, part, text)
			}
		}
	}
}

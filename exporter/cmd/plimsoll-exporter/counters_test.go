package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// The command line of dcgm-exporter's chart, and its image's default, expose what
// they do there, although the image's counter files are not in ours. The simulated
// device has no vGPU license, and the driver's version is a label: 24 of 26 are left.
func TestTheChartsCommandLineStarts(t *testing.T) {
	for _, args := range []string{"-f /etc/dcgm-exporter/default-counters.csv", "-f /etc/dcgm-exporter/dcp-metrics-included.csv -m none -k=true", "", "-f all"} {
		p := start(t, command(t, append(strings.Fields(args), "--source=sim")...))
		text := p.until("/metrics", http.StatusOK, "DCGM_FI_DEV_GPU_UTIL{")
		n := len(regexp.MustCompile(`(?m)^# TYPE DCGM_`).FindAllString(text, -1))
		for _, beyond := range []string{"DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_POWER_MGMT_LIMIT", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_FB_USED_PERCENT"} {
			if all := args == "-f all"; strings.Contains(text, beyond+"{") != all || (n != 24) != all {
				t.Errorf("%q: %d metrics, %s is there: %t", args, n, beyond, !all)
			}
		}
		if !strings.Contains(text, "plimsoll_exporter_mapped_devices{") {
			t.Errorf("%q: what is for placement went with the counters", args)
		}
	}
}

package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
)

// All flags of dcgm-exporter 4.8, in every syntax that dcgm-exporter accepts.
func TestAllDCGMExporterFlagsAreAccepted(t *testing.T) {
	for _, args := range []string{
		"--collectors x.csv", "-f x.csv", "-collectors=x.csv", "--address :9400", "-a :9400", "--collect-interval 1000", "-c 1000",
		"--kubernetes", "-k", "--kubernetes=true", "-k=false", "--kubernetes-enable-pod-labels", "--kubernetes-enable-pod-uid=true",
		"--kubernetes-gpu-id-type device-name", "--kubernetes-pod-label-allowlist-regex ^app$", "--use-old-namespace", "-o",
		"--remote-hostengine-info localhost:5555", "-r localhost:5555", "--devices g:0,1", "-d f", "--switch-devices f", "-s f", "--cpu-devices f", "-p f",
		"--no-hostname", "-n", "-n=true", "-k=True", "--debug=T", "--no-hostname=TRUE", "-n=f", "--fake-gpus", "--configmap-data ns:name", "-m none", "--web-systemd-socket", "--web-config-file web.yml",
		"--xid-count-window-size 300000", "-x 300000", "--replace-blanks-in-model-name", "--rbmn", "-rbmn=true", "--debug", "--debug=false", "--clock-events-count-window-size 1",
		"--enable-dcgm-log", "--dcgm-log-level NONE", "--log-format json", "--pod-resources-kubelet-socket /x", "--hpc-job-mapping-dir /x",
		"--nvidia-resource-names nvidia.com/a,nvidia.com/b", "--kubernetes-virtual-gpus", "--dump-enabled", "--dump-directory /x", "--dump-retention 24",
		"--dump-compression=false", "--kubernetes-enable-dra", "--disable-startup-validate", "--enable-gpu-bind-unbind-watch",
		"--gpu-bind-unbind-poll-interval 1s", "--enable-pprof",
	} {
		t.Run(args, func(t *testing.T) {
			if _, err := parse(t, strings.Fields(args)...); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := parse(t, "--no-such-option=true"); err == nil {
		t.Error("an unknown flag is accepted")
	}
}

// Every environment variable of dcgm-exporter either sets a flag or is ignored with a
// warning.
func TestAllDCGMExporterVariablesAreAccepted(t *testing.T) {
	app := kingpin.New("plimsoll-exporter", "")
	newOptions(app)
	for _, name := range []string{
		"DCGM_EXPORTER_COLLECTORS", "DCGM_EXPORTER_LISTEN", "DCGM_EXPORTER_INTERVAL", "DCGM_EXPORTER_KUBERNETES",
		"DCGM_EXPORTER_USE_OLD_NAMESPACE", "DCGM_EXPORTER_CPU_DEVICES_STR", "DCGM_EXPORTER_CONFIGMAP_DATA", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS",
		"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", "DCGM_EXPORTER_DEVICES_STR",
		"DCGM_EXPORTER_NO_HOSTNAME", "DCGM_EXPORTER_OTHER_DEVICES_STR", "DCGM_EXPORTER_USE_FAKE_GPUS", "DCGM_EXPORTER_WEB_CONFIG_FILE",
		"DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME", "DCGM_EXPORTER_DEBUG", "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE",
		"DCGM_EXPORTER_ENABLE_DCGM_LOG", "DCGM_EXPORTER_DCGM_LOG_LEVEL", "DCGM_EXPORTER_LOG_FORMAT", "DCGM_EXPORTER_DUMP_ENABLED",
		"DCGM_EXPORTER_DUMP_DIRECTORY", "DCGM_EXPORTER_DUMP_RETENTION", "DCGM_EXPORTER_DUMP_COMPRESSION", "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH",
		"DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL", "DCGM_EXPORTER_ENABLE_PPROF", "DCGM_EXPORTER_SYSTEMD_SOCKET", "DCGM_REMOTE_HOSTENGINE_INFO",
		"DCGM_POD_RESOURCES_KUBELET_SOCKET", "DCGM_HPC_JOB_MAPPING_DIR", "NVIDIA_RESOURCE_NAMES", "KUBERNETES_VIRTUAL_GPUS",
		"KUBERNETES_ENABLE_DRA", "DISABLE_STARTUP_VALIDATE",
	} {
		sets := slices.ContainsFunc(app.Model().Flags, func(f *kingpin.FlagModel) bool { return f.Envar == name })
		ignored := slices.ContainsFunc(ignoredFlags, func(f ignoredFlag) bool { return f.env == name })
		if sets == ignored {
			t.Errorf("%s: sets a flag: %t, is ignored: %t", name, sets, ignored)
		}
	}
}

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
// 26 fields. The simulated devices lack the vGPU license, and the driver version is a
// label, so 24 metrics remain.
func TestCommandLineOfDCGMExporterChart(t *testing.T) {
	for _, args := range []string{"-f /etc/dcgm-exporter/default-counters.csv", "-f /etc/dcgm-exporter/dcp-metrics-included.csv -m none -k=true", "", "-f all"} {
		p := start(t, command(t, append(strings.Fields(args), "--source=sim")...))
		text := p.waitFor("/metrics", http.StatusOK, "DCGM_FI_DEV_GPU_UTIL{")
		n := len(regexp.MustCompile(`(?m)^# TYPE DCGM_`).FindAllString(text, -1))
		for _, optional := range []string{"DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_POWER_MGMT_LIMIT", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_FB_USED_PERCENT"} {
			if all := args == "-f all"; strings.Contains(text, optional+"{") != all || (n != 24) != all {
				t.Errorf("%q: %d metrics, %s is exported: %t", args, n, optional, !all)
			}
		}
		if !strings.Contains(text, "plimsoll_exporter_mapped_devices{") {
			t.Errorf("%q: Plimsoll's metrics are missing", args)
		}
	}
}

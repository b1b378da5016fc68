package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
)

// dcgmExporterVersion is the version of dcgm-exporter that upstreamFlags describe. The
// flags are those of 4.8.4; 4.9.0 is only known by its release notes, which name no new flag.
const dcgmExporterVersion = "4.9.0"

// upstreamFlag is a flag of dcgm-exporter.
type upstreamFlag struct {
	name, alias, env, kind, byDefault string
	// differs is the default here, if it is another one.
	differs string
}

var upstreamFlags = []upstreamFlag{
	{"collectors", "f", "DCGM_EXPORTER_COLLECTORS", "string", "/etc/dcgm-exporter/default-counters.csv", ""},
	{"config-file", "", "DCGM_EXPORTER_CONFIG_FILE", "string", "", ""},
	{"address", "a", "DCGM_EXPORTER_LISTEN", "string", ":9400", "empty"}, // --web.listen-address has the default
	{"web-read-timeout", "", "DCGM_EXPORTER_WEB_READ_TIMEOUT", "string", "10s", ""},
	{"web-write-timeout", "", "DCGM_EXPORTER_WEB_WRITE_TIMEOUT", "string", "30s", ""},
	{"max-concurrent-scrapes", "", "DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES", "int", "16", ""},
	{"enable-exporter-metrics", "", "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS", "bool", "false", ""},
	{"collect-interval", "c", "DCGM_EXPORTER_INTERVAL", "int", "30000", ""},
	{"watch-max-keep-age", "", "DCGM_EXPORTER_WATCH_MAX_KEEP_AGE", "duration", "", ""},
	{"watch-max-keep-samples", "", "DCGM_EXPORTER_WATCH_MAX_KEEP_SAMPLES", "int", "", ""},
	{"kubernetes", "k", "DCGM_EXPORTER_KUBERNETES", "bool", "false", "true"},
	{"use-old-namespace", "o", "DCGM_EXPORTER_USE_OLD_NAMESPACE", "bool", "false", ""},
	{"cpu-devices", "p", "DCGM_EXPORTER_CPU_DEVICES_STR", "string", "", ""},
	{"configmap-data", "m", "DCGM_EXPORTER_CONFIGMAP_DATA", "string", "none", ""},
	{"remote-hostengine-info", "r", "DCGM_REMOTE_HOSTENGINE_INFO", "string", "", ""},
	{"kubernetes-enable-pod-labels", "", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "bool", "false", ""},
	{"kubernetes-enable-pod-uid", "", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "bool", "false", ""},
	{"kubernetes-gpu-id-type", "", "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", "string", "", ""},
	{"kubernetes-pod-label-allowlist-regex", "", "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", "list", "", ""},
	{"devices", "d", "DCGM_EXPORTER_DEVICES_STR", "string", "f", ""},
	{"no-hostname", "n", "DCGM_EXPORTER_NO_HOSTNAME", "bool", "false", ""},
	{"health-require-gpus", "", "DCGM_EXPORTER_HEALTH_REQUIRE_GPUS", "bool", "false", ""},
	{"switch-devices", "s", "DCGM_EXPORTER_OTHER_DEVICES_STR", "string", "", ""},
	{"fake-gpus", "", "DCGM_EXPORTER_USE_FAKE_GPUS", "bool", "false", ""},
	{"web-config-file", "", "DCGM_EXPORTER_WEB_CONFIG_FILE", "string", "", ""},
	{"web-systemd-socket", "", "DCGM_EXPORTER_SYSTEMD_SOCKET", "bool", "false", ""},
	{"xid-count-window-size", "x", "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", "int", "300000", ""},
	{"replace-blanks-in-model-name", "rbmn", "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME", "bool", "false", ""},
	{"debug", "", "DCGM_EXPORTER_DEBUG", "bool", "false", ""},
	{"clock-events-count-window-size", "", "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE", "int", "300000", ""},
	{"enable-dcgm-log", "", "DCGM_EXPORTER_ENABLE_DCGM_LOG", "bool", "false", ""},
	{"dcgm-log-level", "", "DCGM_EXPORTER_DCGM_LOG_LEVEL", "level", "", ""},
	{"log-format", "", "DCGM_EXPORTER_LOG_FORMAT", "format", "text", ""},
	{"pod-resources-kubelet-socket", "", "DCGM_POD_RESOURCES_KUBELET_SOCKET", "string", "/var/lib/kubelet/pod-resources/kubelet.sock", ""},
	{"hpc-job-mapping-dir", "", "DCGM_HPC_JOB_MAPPING_DIR", "string", "", ""},
	{"container-labels", "", "DCGM_EXPORTER_CONTAINER_LABELS", "bool", "false", ""},
	{"container-runtime-socket", "", "DCGM_CONTAINER_RUNTIME_SOCKET", "string", "", ""},
	{"nvidia-resource-names", "", "NVIDIA_RESOURCE_NAMES", "list", "", ""},
	{"kubernetes-virtual-gpus", "", "KUBERNETES_VIRTUAL_GPUS", "bool", "false", ""},
	{"dump-enabled", "", "DCGM_EXPORTER_DUMP_ENABLED", "bool", "false", ""},
	{"dump-directory", "", "DCGM_EXPORTER_DUMP_DIRECTORY", "string", "", ""},
	{"dump-retention", "", "DCGM_EXPORTER_DUMP_RETENTION", "int", "", ""},
	{"dump-compression", "", "DCGM_EXPORTER_DUMP_COMPRESSION", "bool", "true", "false"}, // ignored
	{"kubernetes-enable-dra", "", "KUBERNETES_ENABLE_DRA", "bool", "false", ""},
	{"disable-startup-validate", "", "DISABLE_STARTUP_VALIDATE", "bool", "false", ""},
	{"enable-gpu-bind-unbind-watch", "", "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH", "bool", "false", ""},
	{"gpu-bind-unbind-poll-interval", "", "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL", "string", "", ""},
	{"enable-pprof", "", "DCGM_EXPORTER_ENABLE_PPROF", "bool", "false", ""},
	// Not in the program, but in the documentation of 4.8.3.
	{"interval", "", "", "int", "", ""},
}

// valuesByKind are values that dcgm-exporter accepts and one that it refuses.
var valuesByKind = map[string]struct {
	valid   []string
	invalid string
}{
	"string": {[]string{"x"}, ""}, "list": {[]string{"a,b"}, ""}, "int": {[]string{"1000"}, "x"}, "duration": {[]string{"10m", "0s"}, "x"}, "level": {[]string{"NONE", "VERB"}, "x"},
	"format": {[]string{"text", "json"}, "x"}, "bool": {[]string{"true", "false", "1", "0", "t", "F", "TRUE", "False"}, "x"},
}

func TestAllDCGMExporterFlagsAreAccepted(t *testing.T) {
	for _, f := range upstreamFlags {
		t.Run(f.name, func(t *testing.T) {
			values := valuesByKind[f.kind]
			for _, name := range []string{"--" + f.name, "-" + f.name, "-" + f.alias, "--" + f.alias} {
				if strings.Trim(name, "-") == "" || len(f.alias) == 1 && name == "--"+f.alias {
					continue
				}
				for _, value := range values.valid {
					if _, err := parse(t, name+"="+value); err != nil {
						t.Errorf("%s=%s: %v", name, value, err)
					}
					if _, err := parse(t, name, value); err != nil && f.kind != "bool" {
						t.Errorf("%s %s: %v", name, value, err)
					}
				}
				if _, err := parse(t, name); (err == nil) != (f.kind == "bool") {
					t.Errorf("%s without a value: %v", name, err)
				}
				if values.invalid != "" {
					if _, err := parse(t, name+"="+values.invalid); err == nil {
						t.Errorf("%s=%s is accepted", name, values.invalid)
					}
				}
			}
		})
	}
	if _, err := parse(t, "--no-such-option=true"); err == nil {
		t.Error("an unknown flag is accepted")
	}
}

// Every environment variable either sets its flag or belongs to an ignored one, and flags
// have the defaults of dcgm-exporter.
func TestDCGMExporterVariablesAndDefaults(t *testing.T) {
	app := kingpin.New("plimsoll-exporter", "")
	newOptions(app)
	for _, f := range upstreamFlags {
		if f.env == "" {
			continue
		}
		flag := findFlag(app, f.name)
		sets := flag.Envar == f.env
		ignored := slices.ContainsFunc(ignoredFlags, func(i ignoredFlag) bool { return i.name == f.name && i.env == f.env })
		if sets == ignored {
			t.Errorf("%s: sets --%s: %t, is ignored: %t", f.env, f.name, sets, ignored)
		}
		want := f.byDefault
		if f.differs != "" {
			want = strings.TrimSuffix(f.differs, "empty")
		}
		got := strings.Join(flag.Default, ",")
		if f.kind == "bool" && got == "" {
			got = "false"
		}
		if got != want {
			t.Errorf("the default of --%s is %q, want %q", f.name, got, want)
		}
	}
}

// The README names the version to which the tests compare.
func TestReadmeNamesVersionOfDCGMExporter(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil || !strings.Contains(string(text), "dcgm-exporter "+dcgmExporterVersion) {
		t.Errorf("exporter/README.md does not name dcgm-exporter %s: %v", dcgmExporterVersion, err)
	}
}

func TestUnknownVariablesAreReported(t *testing.T) {
	app := kingpin.New("plimsoll-exporter", "")
	newOptions(app)
	got := unknownVariables(app, []string{"DCGM_EXPORTER_INTERVALL=1", "DCGM_EXPORTER_INTERVAL=1", "DCGM_EXPORTER_DUMP_ENABLED=1", "DCGM_OTHER=1", "PATH=/",
		"DCGM_EXPORTER_SERVICE_HOST=10.0.0.1", "DCGM_EXPORTER_SERVICE_PORT=9400", "DCGM_EXPORTER_SERVICE_PORT_METRICS=9400", "DCGM_EXPORTER_PORT=tcp://10.0.0.1:9400",
		"DCGM_EXPORTER_PORT_9400_TCP_ADDR=10.0.0.1", "DCGM_EXPORTER_PORTS=1"})
	if !slices.Equal(got, []string{"DCGM_EXPORTER_INTERVALL", "DCGM_EXPORTER_PORTS"}) {
		t.Errorf("%q", got)
	}
}

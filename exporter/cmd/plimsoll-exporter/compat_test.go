package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/sim"
)

func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	app := kingpin.New("plimsoll-exporter", "").Terminate(nil).UsageWriter(io.Discard).ErrorWriter(io.Discard)
	o := newOptions(app)
	_, err := app.Parse(normalize(app, args))
	return o, err
}

// Every option of dcgm-exporter 4.8, in the forms that its users write.
func TestEveryOptionOfDCGMExporterIsTaken(t *testing.T) {
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
		if _, err := parse(t, strings.Fields(args)...); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, err := parse(t, "--no-such-option=true"); err == nil {
		t.Error("an option that neither has is taken")
	}
}

// Every variable that dcgm-exporter reads sets an option, or is warned of.
func TestEveryVariableOfDCGMExporterIsTaken(t *testing.T) {
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
		warned := slices.ContainsFunc(foreigns, func(f foreign) bool { return f.env == name })
		if sets == warned {
			t.Errorf("%s: sets an option %t, is warned of %t", name, sets, warned)
		}
	}
}

func TestOptionsThatMeanTheSame(t *testing.T) {
	o, err := parse(t, "-k=false", "-n", "--log-format=json", "-collect-interval=1500", "--debug=false")
	if err != nil {
		t.Fatal(err)
	}
	if o.kubernetes || !o.labels.NoHostname || o.logFormat != "json" || o.interval != 1500 || o.debug {
		t.Errorf("%+v", o)
	}
}

func TestWindowsOfCountedEvents(t *testing.T) {
	t.Setenv("DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE", "1500")
	o, err := parse(t, "-x", "60000")
	if err != nil {
		t.Fatal(err)
	}
	if c := o.config(nil); c.XIDWindow != time.Minute || c.ClockEventsWindow != 1500*time.Millisecond {
		t.Errorf("%+v", c)
	}
	o, err = parse(t, "-x=0", "--node-name=n")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.prepare(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--xid-count-window-size is in milliseconds and must be at least 1, not 0") {
		t.Errorf("%v", err)
	}
}

func TestOptionsWithoutMeaningAreWarnedOfOnce(t *testing.T) {
	t.Setenv("DCGM_EXPORTER_CPU_DEVICES_STR", "f")
	o, err := parse(t, "-r", "localhost:5555")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	o.foreign.warn(slog.New(slog.NewTextHandler(&out, nil)))
	if text := out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "--remote-hostengine-info") || !strings.Contains(text, "--cpu-devices") {
		t.Errorf("%s", text)
	}
}

func TestDoctorNamesWhatIsMissing(t *testing.T) {
	o, err := parse(t, "--node-name=n", "--tpu-sysfs-root="+t.TempDir(), "--nvml-library="+filepath.Join(t.TempDir(), "libnvidia-ml.so.1"), "--pod-resources-kubelet-socket="+filepath.Join(t.TempDir(), "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	pods, source, err := o.prepare(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = report(&out, "text", append(inspect(t.Context(), source), o.holders(t.Context(), pods)))
	if err == nil || !strings.Contains(err.Error(), "3 of 3 things are missing") {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"missing  NVIDIA devices: load NVIDIA's driver library", "is the driver installed", "missing  TPUs: no PCI devices to look at", "missing  who holds devices: the kubelet's socket", "is its folder mounted?"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestDoctorInJSON(t *testing.T) {
	o, err := parse(t, "--node-name=n", "--source=nvml", "--nvml-library=/nonexistent/libnvidia-ml.so.1", "--pod-resources-kubelet-socket=/nonexistent/kubelet.sock")
	if err != nil {
		t.Fatal(err)
	}
	pods, source, err := o.prepare(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report(&out, "json", append(inspect(t.Context(), source), o.holders(t.Context(), pods))); err == nil {
		t.Error("nothing is missing where there is nothing")
	}
	golden, err := os.ReadFile("testdata/doctor.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), out.String()); diff != "" {
		t.Error(diff)
	}
	args := normalize(kingpin.New("x", ""), []string{"-o", "doctor", "-o=json"})
	if diff := cmp.Diff([]string{"-o", "doctor", "--output=json"}, args); diff != "" {
		t.Error(diff)
	}
}

func TestDoctorTellsWhatIsThere(t *testing.T) {
	o, err := parse(t, "--node-name=n", "--source=sim", "--sim-scenario=gpu-lost", "-k=false")
	if err != nil {
		t.Fatal(err)
	}
	pods, source, err := o.prepare(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report(&out, "text", append(inspect(t.Context(), source), o.holders(t.Context(), pods))); err == nil {
		t.Error("a lost device is nothing to a doctor")
	}
	text := out.String()
	if strings.Count(text, "ok       device ") != 7 || strings.Count(text, "missing  device 3") != 1 || strings.Count(text, "it does not tell DCGM_FI_") != 1 {
		t.Errorf("%s", text)
	}
}

func TestAWrongCounterFileKeepsWhatIsExposed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pods, err := podmap.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	source, err := sim.FromScenario("steady", 1, pods.Holds, log)
	if err != nil {
		t.Fatal(err)
	}
	c := collector.New(collector.Config{Node: "n", Log: log}, source, pods)
	o := &options{counters: path}
	exposed := func() string {
		if err := c.Collect(context.Background()); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := c.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (DCGM_\S+)`).FindAllStringSubmatch(text.String(), -1) {
			names = append(names, m[1])
		}
		return strings.Join(names, " ")
	}
	write("DCGM_FI_DEV_GPU_UTIL, gauge, Busy.\n")
	if err := o.choose(t.Context(), c, log); err != nil {
		t.Fatal(err)
	}
	if got := exposed(); got != "DCGM_FI_DEV_GPU_UTIL" {
		t.Errorf("exposed: %s", got)
	}
	if o.changed() {
		t.Error("a file that was just read has changed")
	}
	write("DCGM_FI_DEV_GPU_UTIL, gauze, Busy.\n")
	if !o.changed() {
		t.Error("another file is no change")
	}
	if err := o.choose(t.Context(), c, log); err == nil || !strings.Contains(err.Error(), path+": line 1") {
		t.Errorf("%v", err)
	}
	if got := exposed(); got != "DCGM_FI_DEV_GPU_UTIL" {
		t.Errorf("after a wrong file: %s", got)
	}
	if o.changed() {
		t.Error("a wrong file would be told again and again")
	}
	if err := os.Remove(path); err != nil || !o.changed() {
		t.Errorf("a file that is gone is no change: %v", err)
	}
	if err := o.choose(t.Context(), c, log); err == nil || o.changed() {
		t.Errorf("a file that is gone: %v", err)
	}
}

// Without its ConfigMap the exporter goes on with the file, and says why.
func TestCountersOfAFileWhereTheConfigMapIsNotThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	if err := os.WriteFile(path, []byte("DCGM_FI_DEV_GPU_UTIL, gauge, u\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for configMap, want := range map[string]string{"none": "", "ns:name": "kubeconfig", "name": "must be NAMESPACE:NAME"} {
		o, err := parse(t, "-m", configMap, "-f", path, "--kubeconfig="+filepath.Join(t.TempDir(), "kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		where, text, err := o.counterText(t.Context(), slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil || where != "counter file "+path || !strings.HasPrefix(text, "DCGM_FI_DEV_GPU_UTIL") || (want == "") != (out.Len() == 0) || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s, %q, %v, and said %q", configMap, where, text, err, out.String())
		}
	}
}

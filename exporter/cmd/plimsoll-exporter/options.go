package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/sim"
)

// options are the flags of the command line. Flags with a name of dcgm-exporter have the
// same meaning as there.
type options struct {
	source                       string
	nvmlLibrary                  string
	tpu                          tpuOptions
	amdSysfs                     string
	simScenario, simState        string
	simSeed                      int64
	node                         string
	podNamespace, podName        string // of the exporter; empty if unknown
	interval                     int    // ms
	xidWindow, clockEventsWindow int    // ms

	kubernetes    bool
	kubeletSocket string
	usesClaims    bool
	resourceNames []string
	pods          podOptions
	attribution   string
	jobDirectory  string

	labels          collector.Labels
	deviceFilter    string
	configFile      string
	counterFile     string
	configMap       string
	inlineCounters  []collector.Counter // of the configuration file
	lastCounterText string              // content of the counter file at the last read
	fromConfigMap   bool                // the counters are those of the ConfigMap

	// Flags that take precedence over the configuration file.
	counterFileFlag, configMapFlag, intervalFlag, scrapesFlag, exporterMetricsFlag userFlag

	once, strict, debug bool
	logFormat           string
	output              string // of doctor: text or json
	ignored             ignoredFlagSet
	unknownVariables    []string // of dcgm-exporter in the environment

	pprof, exporterMetrics    bool
	requireDevices            bool
	address, webConfigFile    string
	readTimeout, writeTimeout string // durations
	maxScrapes                int
	systemdSocket             bool
	web                       *web.FlagConfig
}

func newOptions(app *kingpin.Application) *options {
	o := &options{}
	o.addSourceFlags(app)
	o.addKubernetesFlags(app)
	o.addMetricFlags(app)
	o.addProcessFlags(app)
	o.addWebFlags(app)
	o.ignored = addIgnoredFlags(app)
	o.web = kingpinflag.AddFlags(app, ":9400")
	o.unknownVariables = unknownVariables(app, os.Environ())
	return o
}

func (o *options) addSourceFlags(app *kingpin.Application) {
	app.Flag("source", "Source of devices: auto (NVIDIA's library, TPUs and AMD GPUs, whichever are available), nvml, tpu, amd or sim.").Default("auto").EnumVar(&o.source, "auto", "nvml", "tpu", "amd", "sim")
	o.tpu.addFlags(app)
	app.Flag("amd-sysfs-root", "Mount point of sysfs, where AMD GPUs are read.").Default("/sys").StringVar(&o.amdSysfs)
	app.Flag("sim-scenario", "Scenario of the simulation: "+strings.Join(sim.Scenarios(), ", ")+".").Default("steady").StringVar(&o.simScenario)
	app.Flag("sim-state", "File with the state of the simulated devices. Each collection reads the file again.").StringVar(&o.simState)
	app.Flag("sim-seed", "Seed of the simulation.").Default("1").Int64Var(&o.simSeed)
	app.Flag("nvml-library", "Path of libnvidia-ml.so.1. Default: the dynamic loader finds the library.").StringVar(&o.nvmlLibrary)
	hostname, _ := os.Hostname() // prepare rejects an empty name
	app.Flag("node-name", "Kubernetes name of the node.").Envar("NODE_NAME").Default(hostname).StringVar(&o.node)
	app.Flag("pod-name", "Name of the exporter's pod. With --pod-namespace, the holders of devices are unknown while the kubelet does not list this pod, as after a restart of the kubelet.").Envar("PLIMSOLL_POD_NAME").StringVar(&o.podName)
	app.Flag("pod-namespace", "Namespace of the exporter's pod.").Envar("PLIMSOLL_POD_NAMESPACE").StringVar(&o.podNamespace)
	o.intervalFlag.track(app.Flag("collect-interval", "Time between collections in milliseconds.").Short('c'), "DCGM_EXPORTER_INTERVAL").Default("30000").IntVar(&o.interval)
}

func (o *options) addKubernetesFlags(app *kingpin.Application) {
	app.Flag("kubernetes", "Read the holders of devices from the kubelet.").Short('k').Envar("DCGM_EXPORTER_KUBERNETES").Default("true").BoolVar(&o.kubernetes)
	app.Flag("pod-resources-kubelet-socket", "Socket of the kubelet's PodResources API.").Envar("DCGM_POD_RESOURCES_KUBELET_SOCKET").
		Default("/var/lib/kubelet/pod-resources/kubelet.sock").StringVar(&o.kubeletSocket)
	app.Flag("kubernetes-enable-pod-labels", "Add the labels of the pods that hold devices to dcgm-exporter's metrics. Requires the API server.").Envar("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS").BoolVar(&o.pods.labels)
	app.Flag("kubernetes-pod-label-allowlist-regex", "Comma-separated regular expressions. Only pod labels whose key matches one of them are added.").Envar("DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX").StringsVar(&o.pods.allowlist)
	app.Flag("kubernetes-enable-pod-uid", "Add the UIDs of the pods that hold devices to dcgm-exporter's metrics. Requires the API server.").Envar("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID").BoolVar(&o.pods.uid)
	app.Flag("kubernetes-pod-owners", "Export plimsoll_pod_owner_info: the Job, JobSet, RayJob, PyTorchJob or other topmost controller of each pod that holds a device. Requires the API server.").Envar("PLIMSOLL_KUBERNETES_POD_OWNERS").BoolVar(&o.pods.owners)
	app.Flag("kubernetes-claim-shares", "Export the shares that resource claims consume of devices with consumable capacity. Requires the API server: get on resourceclaims, list and watch on resourceslices.").Envar("PLIMSOLL_KUBERNETES_CLAIM_SHARES").BoolVar(&o.pods.claimShares)
	app.Flag("kubernetes-kai-shares", "Export the shares of devices that KAI Scheduler assigns (gpu-fraction, gpu-memory). Whole devices without a holder count as shareable. Requires the API server.").Envar("PLIMSOLL_KUBERNETES_KAI_SHARES").BoolVar(&o.pods.kaiShares)
	app.Flag("kubeconfig", "Path of a kubeconfig file for the API server. Default: the service account of the pod.").Envar("KUBECONFIG").StringVar(&o.pods.kubeconfig)
	app.Flag("kubernetes-enable-dra", "Count devices that no device plugin lists as allocatable by resource claims, even before the first claim exists.").Envar("KUBERNETES_ENABLE_DRA").BoolVar(&o.usesClaims)
	app.Flag("kubernetes-virtual-gpus", "Write a series for each replica of a shared device, with the label vgpu. With --attribution=process, used memory and utilization have the value of the pod, and the device has a series without a pod. Otherwise each series has the value of the whole device. The sum of these series exceeds the device. plimsoll_pod_device_* metrics do not.").Envar("KUBERNETES_VIRTUAL_GPUS").BoolVar(&o.labels.VirtualGPUs)
	app.Flag("nvidia-resource-names", "Comma-separated names of additional resources that count as devices.").Envar("NVIDIA_RESOURCE_NAMES").StringsVar(&o.resourceNames)
	app.Flag("attribution", "Method to divide the plimsoll_pod_device_* metrics of a device between several pods: split (evenly by replicas) or process (by the processes of each pod; requires the API server and hostPID).").
		Default(string(collector.BySplit)).EnumVar(&o.attribution, string(collector.BySplit), string(collector.ByProcess))
	app.Flag("procfs-root", "Mount point of the host's procfs, for --attribution=process.").Default("/proc").StringVar(&o.pods.procfs)
	app.Flag("hpc-job-mapping-dir", "Directory with a file for each device, named by the device number, and for each MIG instance, named <device>.<GPU instance>. Each line of a file is a job for the label hpc_job.").Envar("DCGM_HPC_JOB_MAPPING_DIR").StringVar(&o.jobDirectory)
}

func (o *options) addMetricFlags(app *kingpin.Application) {
	app.Flag("config-file", "Configuration file in dcgm-exporter's format (version 1 or 2), for the metrics and the interval. Flags and environment variables take precedence.").Envar("DCGM_EXPORTER_CONFIG_FILE").StringVar(&o.configFile)
	o.counterFileFlag.track(app.Flag("collectors", "Counter file in dcgm-exporter's format. The file selects dcgm-exporter's metrics with their types and help texts. It is read again on SIGHUP and after a change. \"all\" selects every metric. If the default file does not exist, dcgm-exporter's default metrics are selected.").
		Short('f'), "DCGM_EXPORTER_COLLECTORS").Default(defaultCounterFile).StringVar(&o.counterFile)
	o.configMapFlag.track(app.Flag("configmap-data", "ConfigMap as NAMESPACE:NAME whose key metrics contains the counter file. If the ConfigMap cannot be read at the start or selects no field, --collectors applies. Requires the permission get. It is read again on SIGHUP.").
		Short('m'), "DCGM_EXPORTER_CONFIGMAP_DATA").Default(noConfigMap).StringVar(&o.configMap)
	app.Flag("devices", "Devices with dcgm-exporter's metrics: f (MIG instances, and whole devices for metrics that instances do not have), g[:NUMBERS] (whole devices), i[:NUMBERS] (MIG instances by GPU_I_ID) or both, for example g:0,2-4+i.").
		Short('d').Envar("DCGM_EXPORTER_DEVICES_STR").Default("f").StringVar(&o.deviceFilter)
	app.Flag("xid-count-window-size", "Window of DCGM_EXP_XID_ERRORS_COUNT in milliseconds.").
		Short('x').Envar("DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE").Default("300000").IntVar(&o.xidWindow)
	app.Flag("clock-events-count-window-size", "Window of DCGM_EXP_CLOCK_EVENTS_COUNT in milliseconds.").
		Envar("DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE").Default("300000").IntVar(&o.clockEventsWindow)
	app.Flag("compat", "Version of dcgm-exporter whose names, units and labels the metrics have: legacy (up to 4.8.2, label Hostname), 4.8 (since 4.8.3, label hostname) or 4.9 (names and units of DCGM 4.7). A counter file determines its own names.").
		Default(collector.DialectLegacy).EnumVar(&o.labels.Dialect, collector.DialectLegacy, collector.Dialect48, collector.Dialect49)
	app.Flag("no-hostname", "Omit the hostname label of dcgm-exporter's metrics.").Short('n').Envar("DCGM_EXPORTER_NO_HOSTNAME").BoolVar(&o.labels.NoHostname)
	app.Flag("use-old-namespace", "Use the labels pod_name, pod_namespace and container_name for holders.").Short('o').Envar("DCGM_EXPORTER_USE_OLD_NAMESPACE").BoolVar(&o.labels.OldNamespace)
	app.Flag("replace-blanks-in-model-name", "Replace blanks in the label modelName with -.").Envar("DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME").BoolVar(&o.labels.ReplaceBlanks)
}

func (o *options) addProcessFlags(app *kingpin.Application) {
	app.Flag("once", "Read the devices twice, which rates require, print the metrics and exit.").BoolVar(&o.once)
	app.Flag("strict", "Exit if the first collection fails or the kubelet does not respond to it.").BoolVar(&o.strict)
	app.Flag("debug", "Enable debug logs.").Envar("DCGM_EXPORTER_DEBUG").BoolVar(&o.debug)
	app.Flag("log-format", "Log format: text or json.").Envar("DCGM_EXPORTER_LOG_FORMAT").Default("text").EnumVar(&o.logFormat, "text", "json")
	app.Flag("health-require-gpus", "Report /health as unhealthy while no device is listed.").Envar("DCGM_EXPORTER_HEALTH_REQUIRE_GPUS").BoolVar(&o.requireDevices)
	o.exporterMetricsFlag.track(app.Flag("enable-exporter-metrics", "Export the metrics go_*, process_* and promhttp_* of the exporter process."), "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS").BoolVar(&o.exporterMetrics)
}

func (o *options) addWebFlags(app *kingpin.Application) {
	app.Flag("enable-pprof", "Serve profiles at /debug/pprof. Requires --web-config-file, so that they are protected.").Envar("DCGM_EXPORTER_ENABLE_PPROF").BoolVar(&o.pprof)
	app.Flag("web-read-timeout", "Time in which a client must send its request.").Envar("DCGM_EXPORTER_WEB_READ_TIMEOUT").Default(defaultReadTimeout.String()).StringVar(&o.readTimeout)
	app.Flag("web-write-timeout", "Time in which a client must read the response.").Envar("DCGM_EXPORTER_WEB_WRITE_TIMEOUT").Default(defaultWriteTimeout.String()).StringVar(&o.writeTimeout)
	o.scrapesFlag.track(app.Flag("max-concurrent-scrapes", "Number of scrapes that are encoded at the same time. Others get status 503. Responses that clients still read have 64 times this limit."), "DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES").Default("16").IntVar(&o.maxScrapes)
	app.Flag("address", "Same as --web.listen-address.").Short('a').Envar("DCGM_EXPORTER_LISTEN").StringVar(&o.address)
	app.Flag("web-config-file", "Same as --web.config.file.").Envar("DCGM_EXPORTER_WEB_CONFIG_FILE").StringVar(&o.webConfigFile)
	app.Flag("web-systemd-socket", "Same as --web.systemd-socket.").Envar("DCGM_EXPORTER_SYSTEMD_SOCKET").BoolVar(&o.systemdSocket)
}

// track records whether the user sets the flag, and sets its environment variable.
func (f *userFlag) track(clause *kingpin.FlagClause, env string) *kingpin.FlagClause {
	f.env = env
	return clause.Envar(env).IsSetByUser(&f.onCommandLine)
}

// Limits of dcgm-exporter for a request and its response.
const (
	defaultReadTimeout  = 10 * time.Second
	defaultWriteTimeout = 30 * time.Second
)

// timeout parses a limit. Like dcgm-exporter, it uses the default for an invalid one.
func timeout(flag, text string, byDefault time.Duration, log *slog.Logger) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		log.Warn("ignoring a flag that is not a duration such as 30s", "flag", flag, "value", text, "using", byDefault)
		return byDefault
	}
	return d
}

// maxMilliseconds is the longest interval and window: 30 days.
const maxMilliseconds = 30 * 24 * 3600 * 1000

// validate checks the flags that kingpin does not check, and parses the device filter.
func (o *options) validate() error {
	if o.node == "" {
		return errors.New("the name of the node is unknown: set --node-name or NODE_NAME")
	}
	for _, flag := range []struct {
		name        string
		ms, minimum int
	}{{"collect-interval", o.interval, 100}, {"xid-count-window-size", o.xidWindow, 1}, {"clock-events-count-window-size", o.clockEventsWindow, 1}} {
		if flag.ms < flag.minimum {
			return fmt.Errorf("--%s must be at least %d milliseconds, not %d", flag.name, flag.minimum, flag.ms)
		}
		if flag.ms > maxMilliseconds {
			return fmt.Errorf("--%s must be at most %d milliseconds, not %d", flag.name, maxMilliseconds, flag.ms)
		}
	}
	if o.maxScrapes < 1 {
		return fmt.Errorf("--max-concurrent-scrapes must be at least 1, not %d", o.maxScrapes)
	}
	if o.pprof && o.webConfigFile == "" && *o.web.WebConfigFile == "" {
		return errors.New("--enable-pprof requires --web-config-file, because profiles must be protected by TLS or a password")
	}
	for _, file := range []struct{ flag, path string }{{"kubeconfig", o.pods.kubeconfig}, {"web.config.file", *o.web.WebConfigFile}, {"web-config-file", o.webConfigFile}, {"sim-state", o.simState}} {
		if file.path == "" {
			continue
		}
		if err := checkRegularFile(file.path); err != nil {
			return fmt.Errorf("--%s: %w", file.flag, err)
		}
	}
	var err error
	if o.labels.Devices, err = collector.ParseDeviceFilter(o.deviceFilter); err != nil {
		return fmt.Errorf("--devices: %w", err)
	}
	return nil
}

// prepare validates the flags and opens the kubelet and the sources.
func (o *options) prepare(log *slog.Logger) (*podmap.Poller, []collector.NamedSource, error) {
	if err := errors.Join(o.applyConfigFile(log), o.validate()); err != nil {
		return nil, nil, err
	}
	socket := o.kubeletSocket
	if !o.kubernetes {
		socket = ""
	}
	pods, err := podmap.New(socket, splitLists(o.resourceNames))
	if err != nil {
		return nil, nil, err
	}
	pods.ExpectPod(o.podNamespace, o.podName)
	if o.usesClaims {
		pods.ExpectClaims()
	}
	sources, err := o.openSources(pods, log)
	return pods, sources, err
}

// collectorConfig returns the configuration of the collector.
func (o *options) collectorConfig(log *slog.Logger) collector.Config {
	own := prometheus.NewRegistry()
	own.MustRegister(versioncollector.NewCollector("plimsoll", versioncollector.WithExtraConstLabels(prometheus.Labels{"component": "exporter"})))
	if o.exporterMetrics {
		own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	config := collector.Config{Node: o.node, Attribution: collector.Attribution(o.attribution), Labels: o.labels, Log: log, Own: own, CountScrapes: o.exporterMetrics,
		MaxScrapes: o.maxScrapes, RequireDevices: o.requireDevices, Interval: milliseconds(o.interval),
		XIDWindow: milliseconds(o.xidWindow), ClockEventsWindow: milliseconds(o.clockEventsWindow)}
	if o.jobDirectory != "" {
		config.Jobs = newJobMap(o.jobDirectory, log).jobsOf
	}
	return config
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func (o *options) logger() *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if o.debug {
		options.Level = slog.LevelDebug
	}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

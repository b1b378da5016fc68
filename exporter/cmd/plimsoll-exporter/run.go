package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/sim"
)

// options of the command line. Names that dcgm-exporter has mean the same here.
type options struct {
	source, scenario, state, library string
	seed                             int64
	node, socket, address            string
	interval                         int
	xidWindow, clockEventsWindow     int // ms
	kubernetes, once, debug, strict  bool
	claims                           bool
	pprof                            bool
	counters, logFormat, webConfig   string
	seen                             string // of the counter file
	output                           string // of doctor: text or json
	attribution, jobs, shown         string
	configMap                        string
	pods                             podOptions
	systemdSocket                    bool
	labels                           collector.Labels
	tpu                              tpuOptions
	foreign                          given
	resources                        []string
	web                              *web.FlagConfig
}

func newOptions(app *kingpin.Application) *options {
	o := &options{}
	app.Flag("source", "Where devices are read from: auto (whichever of NVIDIA's library and TPUs are there), nvml, tpu or sim.").Default("auto").EnumVar(&o.source, "auto", "nvml", "tpu", "sim")
	o.tpu.add(app)
	app.Flag("sim-scenario", "Simulated scenario: "+strings.Join(sim.Scenarios(), ", ")+".").Default("steady").StringVar(&o.scenario)
	app.Flag("sim-state", "File with the simulated devices' state, read again at each collection.").StringVar(&o.state)
	app.Flag("sim-seed", "Seed of the simulation.").Default("1").Int64Var(&o.seed)
	app.Flag("nvml-library", "Path of libnvidia-ml.so.1, where the loader does not find it.").StringVar(&o.library)
	hostname, _ := os.Hostname() // an empty name is refused below
	app.Flag("node-name", "Kubernetes name of the node.").Envar("NODE_NAME").Default(hostname).StringVar(&o.node)
	app.Flag("collect-interval", "Milliseconds between collections.").Short('c').Envar("DCGM_EXPORTER_INTERVAL").Default("30000").IntVar(&o.interval)
	app.Flag("xid-count-window-size", "Milliseconds within which DCGM_EXP_XID_ERRORS_COUNT counts.").
		Short('x').Envar("DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE").Default("300000").IntVar(&o.xidWindow)
	app.Flag("clock-events-count-window-size", "Milliseconds within which DCGM_EXP_CLOCK_EVENTS_COUNT counts.").
		Envar("DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE").Default("300000").IntVar(&o.clockEventsWindow)
	app.Flag("kubernetes", "Ask the kubelet who holds devices.").Short('k').Envar("DCGM_EXPORTER_KUBERNETES").Default("true").BoolVar(&o.kubernetes)
	app.Flag("pod-resources-kubelet-socket", "Socket of the kubelet's PodResources API.").Envar("DCGM_POD_RESOURCES_KUBELET_SOCKET").
		Default("/var/lib/kubelet/pod-resources/kubelet.sock").StringVar(&o.socket)
	app.Flag("kubernetes-enable-pod-labels", "Put the labels of the pods that hold devices on dcgm-exporter's metrics. Asks the API server.").Envar("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS").BoolVar(&o.pods.labels)
	app.Flag("kubernetes-pod-label-allowlist-regex", "Only those pod labels in whose key one of these is found; comma-separated.").Envar("DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX").StringsVar(&o.pods.allowed)
	app.Flag("kubernetes-enable-pod-uid", "Put the UIDs of the pods that hold devices on dcgm-exporter's metrics. Asks the API server.").Envar("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID").BoolVar(&o.pods.uid)
	app.Flag("kubernetes-pod-owners", "Expose plimsoll_pod_owner_info: which Job, JobSet, RayJob or PyTorchJob a pod belongs to. Asks the API server.").Envar("PLIMSOLL_KUBERNETES_POD_OWNERS").BoolVar(&o.pods.owners)
	app.Flag("kubeconfig", "How to reach the API server from outside of a cluster.").Envar("KUBECONFIG").StringVar(&o.pods.kubeconfig)
	app.Flag("kubernetes-enable-dra", "Devices that no device plugin has are handed out by claims (dynamic resources), also before the first claim is seen.").Envar("KUBERNETES_ENABLE_DRA").BoolVar(&o.claims)
	app.Flag("kubernetes-virtual-gpus", "A series for each replica of a shared device, with its name as vgpu and the whole device's value. A sum over them exceeds the device; plimsoll_pod_device_* do not.").Envar("KUBERNETES_VIRTUAL_GPUS").BoolVar(&o.labels.VirtualGPUs)
	app.Flag("hpc-job-mapping-dir", "Folder with a file for each device, named by its number, and for each MIG instance, named <device>.<GPU instance>, with a job on each line; they become hpc_job.").Envar("DCGM_HPC_JOB_MAPPING_DIR").StringVar(&o.jobs)
	app.Flag("devices", "Devices that have dcgm-exporter's metrics: f (MIG instances where there are any, and the whole device for what they can't tell), g[:NUMBERS] (whole devices), i[:NUMBERS] (instances, by GPU_I_ID), such as g:0,2-4.").
		Short('d').Envar("DCGM_EXPORTER_DEVICES_STR").Default("f").StringVar(&o.shown)
	app.Flag("nvidia-resource-names", "Further resource names that count as devices.").Envar("NVIDIA_RESOURCE_NAMES").StringsVar(&o.resources)
	app.Flag("address", "Same as --web.listen-address.").Short('a').Envar("DCGM_EXPORTER_LISTEN").StringVar(&o.address)
	app.Flag("attribution", "How plimsoll_pod_device_* divide a device that several pods hold: split (evenly, by replicas), process (by what their processes use; asks the API server for the pods' UIDs, and needs hostPID) or device (not at all: it is no pod's).").
		Default(string(collector.BySplit)).EnumVar(&o.attribution, string(collector.BySplit), string(collector.ByProcess), string(collector.ByDevice))
	app.Flag("procfs-root", "Where the host's procfs is mounted, to find the pods of processes with --attribution=process.").Default("/proc").StringVar(&o.pods.procfs)
	app.Flag("once", "Read the devices twice, as rates need it, print the metrics and exit.").BoolVar(&o.once)
	app.Flag("debug", "Log more.").Envar("DCGM_EXPORTER_DEBUG").BoolVar(&o.debug)
	app.Flag("strict", "Exit when the first collection fails, or the kubelet does not answer it.").BoolVar(&o.strict)
	app.Flag("collectors", "Counter file in dcgm-exporter's form: which of its metrics are exposed, and how. Read again on SIGHUP and when it changes. What dcgm-exporter exposes by default where that file is not there; \"all\" for everything.").
		Short('f').Envar("DCGM_EXPORTER_COLLECTORS").Default(defaultCounters).StringVar(&o.counters)
	app.Flag("configmap-data", "ConfigMap, NAMESPACE:NAME, whose key metrics is the counter file; instead of --collectors where it can be read. Needs get on it. Read again on SIGHUP.").
		Short('m').Envar("DCGM_EXPORTER_CONFIGMAP_DATA").Default(noConfigMap).StringVar(&o.configMap)
	app.Flag("compat", "Dialect of dcgm-exporter: legacy (Hostname) or 4.8 (hostname).").Default("legacy").EnumVar(&o.labels.Dialect, "legacy", "4.8")
	app.Flag("no-hostname", "Leave the host's name out of dcgm-exporter's metrics.").Short('n').Envar("DCGM_EXPORTER_NO_HOSTNAME").BoolVar(&o.labels.NoHostname)
	app.Flag("use-old-namespace", "Name holders by pod_name, pod_namespace and container_name.").Short('o').Envar("DCGM_EXPORTER_USE_OLD_NAMESPACE").BoolVar(&o.labels.OldNamespace)
	app.Flag("replace-blanks-in-model-name", "Write - for the blanks of modelName.").Envar("DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME").BoolVar(&o.labels.ReplaceBlanks)
	app.Flag("log-format", "text or json.").Envar("DCGM_EXPORTER_LOG_FORMAT").Default("text").EnumVar(&o.logFormat, "text", "json")
	app.Flag("enable-pprof", "Serve /debug/pprof.").Envar("DCGM_EXPORTER_ENABLE_PPROF").BoolVar(&o.pprof)
	app.Flag("web-config-file", "Same as --web.config.file.").Envar("DCGM_EXPORTER_WEB_CONFIG_FILE").StringVar(&o.webConfig)
	app.Flag("web-systemd-socket", "Same as --web.systemd-socket.").Envar("DCGM_EXPORTER_SYSTEMD_SOCKET").BoolVar(&o.systemdSocket)
	o.foreign = addForeigns(app)
	o.web = kingpinflag.AddFlags(app, ":9400")
	return o
}

func (o *options) run(ctx context.Context) error {
	log := o.logger()
	o.foreign.warn(log)
	pods, sources, err := o.prepare(log)
	if err != nil {
		return err
	}
	defer end(sources, pods, log)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // from now on: unheard it would end the process
	defer signal.Stop(hangups)
	config := o.config(log)
	if o.jobs != "" {
		config.Jobs = (&jobMap{folder: o.jobs, deadline: time.Second, log: log}).of
	}
	watched, err := o.watchPods(ctx, &config, log)
	if err != nil {
		return err
	}
	defer watched()
	c := collector.NewAuto(config, pods, sources...)
	if err := o.choose(ctx, c, log); err != nil {
		return err
	}
	if o.once {
		return printOnce(ctx, c, os.Stdout)
	}
	if o.strict {
		if err := errors.Join(c.Collect(ctx), o.kubelet(pods)); err != nil {
			return fmt.Errorf("%w (--strict)", err)
		}
	}
	go o.reload(ctx, c, hangups, log)
	return o.serve(ctx, c, log)
}

// farewell is how long the libraries may take to be given back.
const farewell = 2 * time.Second

// end gives the libraries back, but does not wait for a driver whose lock is held.
func end(sources []collector.NamedSource, pods *podmap.Poller, log *slog.Logger) {
	done := make(chan error, 1)
	go func() { done <- errors.Join(closeAll(sources), pods.Close()) }()
	select {
	case err := <-done:
		if err != nil {
			log.Warn("not everything was given back", "err", err)
		}
	case <-time.After(farewell):
		log.Warn("the driver does not answer; ending all the same")
	}
}

func (o *options) config(log *slog.Logger) collector.Config {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return collector.Config{Node: o.node, Attribution: collector.Attribution(o.attribution), Labels: o.labels, Log: log, Own: own, Interval: time.Duration(o.interval) * time.Millisecond,
		XIDWindow: time.Duration(o.xidWindow) * time.Millisecond, ClockEventsWindow: time.Duration(o.clockEventsWindow) * time.Millisecond}
}

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

// prepare checks the options and opens what they name.
func (o *options) prepare(log *slog.Logger) (*podmap.Poller, []collector.NamedSource, error) {
	if o.node == "" {
		return nil, nil, errors.New("the node has no name: set --node-name or NODE_NAME")
	}
	for _, flag := range []struct {
		name      string
		ms, least int
	}{{"collect-interval", o.interval, 100}, {"xid-count-window-size", o.xidWindow, 1}, {"clock-events-count-window-size", o.clockEventsWindow, 1}} {
		if flag.ms < flag.least {
			return nil, nil, fmt.Errorf("--%s is in milliseconds and must be at least %d, not %d", flag.name, flag.least, flag.ms)
		}
	}
	if !o.kubernetes {
		o.socket = ""
	}
	var err error
	if o.labels.Devices, err = collector.ParseDeviceFilter(o.shown); err != nil {
		return nil, nil, fmt.Errorf("--devices %w", err)
	}
	pods, err := podmap.New(o.socket, strings.Split(strings.Join(o.resources, ","), ","))
	if err != nil {
		return nil, nil, err
	}
	if o.claims {
		pods.ExpectClaims()
	}
	sources, err := o.open(pods, log)
	return pods, sources, err
}

// kubelet is an error when it was to be asked and did not answer.
func (o *options) kubelet(pods *podmap.Poller) error {
	if !o.kubernetes {
		return nil
	}
	_, err := pods.Last()
	return err
}

// apart are two readings of which rates are told; the profiling counters take at
// least 100 ms.
const apart = 250 * time.Millisecond

func printOnce(ctx context.Context, c *collector.Collector, out io.Writer) error {
	if err := c.Collect(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(apart):
	}
	if err := c.Collect(ctx); err != nil {
		return err
	}
	return c.WriteText(out)
}

func (o *options) serve(ctx context.Context, c *collector.Collector, log *slog.Logger) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40) // little is allocated, and rarely: a node's memory is dearer than the time
	}
	collected := make(chan struct{})
	go func() { defer close(collected); c.Run(ctx) }()
	if o.address != "" {
		*o.web.WebListenAddresses = []string{o.address}
	}
	if o.webConfig != "" {
		*o.web.WebConfigFile = o.webConfig
	}
	if o.systemdSocket {
		*o.web.WebSystemdSocket = true
	}
	handler := c.Handler()
	if o.pprof {
		handler = withPprof(handler)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(shutdown) // ends with the process all the same
	}()
	err := web.ListenAndServe(server, o.web, log)
	if errors.Is(err, http.ErrServerClosed) {
		<-collected
		return nil
	}
	return err
}

// withPprof serves profiles beside the handler.
func withPprof(handler http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

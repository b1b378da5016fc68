package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/nvml"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/sim"
)

// options of the command line. Names that dcgm-exporter has mean the same here.
type options struct {
	source, scenario, state, library string
	seed                             int64
	node, socket, address            string
	interval                         int
	kubernetes, once, debug          bool
	resources                        []string
	web                              *web.FlagConfig
}

func newOptions(app *kingpin.Application) *options {
	o := &options{}
	app.Flag("source", "Where devices are read from: auto (NVIDIA's library), nvml or sim.").Default("auto").EnumVar(&o.source, "auto", "nvml", "sim")
	app.Flag("sim-scenario", "Simulated scenario: "+strings.Join(sim.Scenarios(), ", ")+".").Default("steady").StringVar(&o.scenario)
	app.Flag("sim-state", "File with the simulated devices' state, read again at each collection.").StringVar(&o.state)
	app.Flag("sim-seed", "Seed of the simulation.").Default("1").Int64Var(&o.seed)
	app.Flag("nvml-library", "Path of libnvidia-ml.so.1, where the loader does not find it.").StringVar(&o.library)
	hostname, _ := os.Hostname() // an empty name is refused below
	app.Flag("node-name", "Kubernetes name of the node.").Envar("NODE_NAME").Default(hostname).StringVar(&o.node)
	app.Flag("collect-interval", "Milliseconds between collections.").Short('c').Envar("DCGM_EXPORTER_INTERVAL").Default("30000").IntVar(&o.interval)
	app.Flag("kubernetes", "Ask the kubelet who holds devices.").Short('k').Envar("DCGM_EXPORTER_KUBERNETES").Default("true").BoolVar(&o.kubernetes)
	app.Flag("pod-resources-kubelet-socket", "Socket of the kubelet's PodResources API.").Envar("DCGM_POD_RESOURCES_KUBELET_SOCKET").
		Default("/var/lib/kubelet/pod-resources/kubelet.sock").StringVar(&o.socket)
	app.Flag("nvidia-resource-names", "Further resource names that count as devices.").Envar("NVIDIA_RESOURCE_NAMES").StringsVar(&o.resources)
	app.Flag("address", "Same as --web.listen-address.").Short('a').Envar("DCGM_EXPORTER_LISTEN").StringVar(&o.address)
	app.Flag("once", "Collect once, print the metrics and exit.").BoolVar(&o.once)
	app.Flag("debug", "Log more.").Envar("DCGM_EXPORTER_DEBUG").BoolVar(&o.debug)
	o.web = kingpinflag.AddFlags(app, ":9400")
	return o
}

func (o *options) run(ctx context.Context) error {
	level := slog.LevelInfo
	if o.debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if o.node == "" {
		return errors.New("the node has no name: set --node-name or NODE_NAME")
	}
	if o.interval < 100 {
		return fmt.Errorf("--collect-interval is in milliseconds and must be at least 100, not %d", o.interval)
	}
	if !o.kubernetes {
		o.socket = ""
	}
	pods, err := podmap.New(o.socket, o.resources)
	if err != nil {
		return err
	}
	source, err := o.open(pods, log)
	if err != nil {
		return err
	}
	c := collector.New(collector.Config{Node: o.node, Interval: time.Duration(o.interval) * time.Millisecond, Log: log}, source, pods)
	defer func() { _ = errors.Join(source.Close(), pods.Close()) }()
	if o.once {
		return printOnce(ctx, c, os.Stdout)
	}
	return o.serve(ctx, c, log)
}

func (o *options) open(pods *podmap.Poller, log *slog.Logger) (device.Source, error) {
	switch {
	case o.source == "sim" && o.state != "":
		return sim.FromFile(o.state, pods.Holds, log), nil
	case o.source == "sim":
		return sim.FromScenario(o.scenario, o.seed, pods.Holds, log)
	}
	return nvml.New(o.library, log), nil
}

func printOnce(ctx context.Context, c *collector.Collector, out io.Writer) error {
	if err := c.Collect(ctx); err != nil {
		return err
	}
	encoder := expfmt.NewEncoder(out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range c.Gather() {
		if err := encoder.Encode(family); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) serve(ctx context.Context, c *collector.Collector, log *slog.Logger) error {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	collected := make(chan struct{})
	go func() { defer close(collected); c.Run(ctx) }()
	if o.address != "" {
		*o.web.WebListenAddresses = []string{o.address}
	}
	server := &http.Server{Handler: c.Handler(own), ReadHeaderTimeout: 10 * time.Second}
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

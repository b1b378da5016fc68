package main

import (
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/nvml"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/sim"
	"plimsoll.dev/plimsoll/exporter/internal/tpu"
)

// tpuOptions say where TPUs are looked for.
type tpuOptions struct{ sysfs, procfs, dev, runtimes, plugin, model, topology string }

func (o *tpuOptions) add(app *kingpin.Application) {
	app.Flag("tpu-sysfs-root", "Where sysfs is mounted, to find TPUs in.").Default("/sys").StringVar(&o.sysfs)
	app.Flag("tpu-procfs-root", "Where the host's procfs is mounted, to find the workloads that hold TPUs, and their runtime metric services.").Default("/proc").StringVar(&o.procfs)
	app.Flag("tpu-dev-root", "Where the workloads see device nodes.").Default("/dev").StringVar(&o.dev)
	app.Flag("tpu-runtime-metrics", "Addresses of runtime metric services, with commas between. Without any, those of the processes that hold TPUs, else localhost at the ports of TPU_RUNTIME_METRICS_PORTS, or 8431.").StringVar(&o.runtimes)
	app.Flag("tpu-plugin-metrics", "URL of the TPU device plugin's own metrics, such as http://localhost:2112/metrics, to relay what only it knows. Not asked without one.").StringVar(&o.plugin)
	app.Flag("tpu-model", "Model of the TPUs, as the node's label cloud.google.com/gke-tpu-accelerator says. That of their generation without one.").Envar("TPU_MODEL").StringVar(&o.model)
	app.Flag("tpu-topology", "Topology of their slice, as the node's label cloud.google.com/gke-tpu-topology says.").Envar("TPU_TOPOLOGY").StringVar(&o.topology)
}

func (o *tpuOptions) source(node string, pods *podmap.Poller, log *slog.Logger) *tpu.Source {
	options := tpu.Options{Node: node, Sysfs: o.sysfs, Procfs: o.procfs, Dev: o.dev, Ports: os.Getenv("TPU_RUNTIME_METRICS_PORTS"), Plugin: o.plugin,
		Model: o.model, Topology: o.topology, Held: pods.Holds, Log: log}
	if o.runtimes != "" {
		options.Runtimes = strings.Split(o.runtimes, ",")
	}
	return tpu.New(options)
}

// open the sources that --source asks for.
func (o *options) open(pods *podmap.Poller, log *slog.Logger) ([]collector.NamedSource, error) {
	driver := nvml.New(o.library, log)
	if o.attribution == string(collector.ByProcess) {
		driver.TellProcesses()
	}
	nvidia := collector.NamedSource{Name: "nvml", Source: driver}
	google := collector.NamedSource{Name: "tpu", Source: o.tpu.source(o.node, pods, log)}
	switch {
	case o.source == "sim" && o.state != "":
		return []collector.NamedSource{{Name: "sim", Source: sim.FromFile(o.state, pods.Holds, log)}}, nil
	case o.source == "sim":
		simulated, err := sim.FromScenario(o.scenario, o.seed, pods.Holds, log)
		return []collector.NamedSource{{Name: "sim", Source: simulated}}, err
	case o.source == "tpu":
		return []collector.NamedSource{google}, nil
	case o.source == "nvml":
		return []collector.NamedSource{nvidia}, nil
	}
	return []collector.NamedSource{nvidia, google}, nil
}

func closeAll(sources []collector.NamedSource) error {
	var failures []error
	for _, s := range sources {
		failures = append(failures, s.Close())
	}
	return errors.Join(failures...)
}

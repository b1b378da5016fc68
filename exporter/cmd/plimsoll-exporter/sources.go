package main

import (
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"plimsoll.dev/plimsoll/exporter/internal/amd"
	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/nvml"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/sim"
	"plimsoll.dev/plimsoll/exporter/internal/tpu"
)

// tpuOptions configure the discovery and the metrics of TPUs.
type tpuOptions struct{ sysfs, procfs, dev, runtimes, plugin, model, topology string }

func (o *tpuOptions) addFlags(app *kingpin.Application) {
	app.Flag("tpu-sysfs-root", "Mount point of sysfs, where TPUs are discovered.").Default("/sys").StringVar(&o.sysfs)
	app.Flag("tpu-procfs-root", "Mount point of the host's procfs, where the workloads that hold TPUs and their runtime metric services are discovered.").Default("/proc").StringVar(&o.procfs)
	app.Flag("tpu-dev-root", "Directory of device nodes in the workloads' containers.").Default("/dev").StringVar(&o.dev)
	app.Flag("tpu-runtime-metrics", "Comma-separated addresses of runtime metric services. Default: the addresses of the processes that hold TPUs, otherwise localhost with the ports in TPU_RUNTIME_METRICS_PORTS, or 8431.").StringVar(&o.runtimes)
	app.Flag("tpu-plugin-metrics", "URL of the TPU device plugin's metrics, such as http://localhost:2112/metrics. The exporter relays metrics that only the plugin has. Default: the plugin is not queried.").StringVar(&o.plugin)
	app.Flag("tpu-model", "Model of the TPUs, the value of the node label cloud.google.com/gke-tpu-accelerator. Default: the model of the chip's generation.").Envar("TPU_MODEL").StringVar(&o.model)
	app.Flag("tpu-topology", "Topology of the TPU slice, the value of the node label cloud.google.com/gke-tpu-topology.").Envar("TPU_TOPOLOGY").StringVar(&o.topology)
}

func (o *tpuOptions) source(node string, pods *podmap.Poller, log *slog.Logger) *tpu.Source {
	options := tpu.Options{Node: node, Sysfs: o.sysfs, Procfs: o.procfs, Dev: o.dev, Ports: os.Getenv("TPU_RUNTIME_METRICS_PORTS"), Plugin: o.plugin,
		Model: o.model, Topology: o.topology, IsAllocated: pods.IsAllocated, Log: log}
	if o.runtimes != "" {
		options.Runtimes = strings.Split(o.runtimes, ",")
	}
	return tpu.New(options)
}

// openSources opens the sources that --source selects.
func (o *options) openSources(pods *podmap.Poller, log *slog.Logger) ([]collector.NamedSource, error) {
	driver := nvml.New(o.nvmlLibrary, log)
	if o.attribution == string(collector.ByProcess) {
		driver.EnableProcesses()
	}
	nvidia := collector.NamedSource{Name: "nvml", Source: driver}
	graphics := collector.NamedSource{Name: "amd", Source: amd.New(amd.Options{Node: o.node, Sysfs: o.amdSysfs, Log: log})}
	google := collector.NamedSource{Name: "tpu", Source: o.tpu.source(o.node, pods, log)}
	switch {
	case o.source == "sim" && o.simState != "":
		return []collector.NamedSource{{Name: "sim", Source: sim.FromFile(o.simState, pods.IsAllocated, log)}}, nil
	case o.source == "sim":
		simulated, err := sim.FromScenario(o.simScenario, o.simSeed, pods.IsAllocated, log)
		return []collector.NamedSource{{Name: "sim", Source: simulated}}, err
	case o.source == "tpu":
		return []collector.NamedSource{google}, nil
	case o.source == "nvml":
		return []collector.NamedSource{nvidia}, nil
	case o.source == "amd":
		return []collector.NamedSource{graphics}, nil
	}
	return []collector.NamedSource{nvidia, google, graphics}, nil
}

func closeAll(sources []collector.NamedSource) error {
	var failures []error
	for _, s := range sources {
		failures = append(failures, s.Close())
	}
	return errors.Join(failures...)
}

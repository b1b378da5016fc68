package config_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// exporterScrape is what a configuration says of the exporter's job.
type exporterScrape struct {
	HonorLabels bool
	Relabelings []relabeling
	Metrics     []relabeling
}

// relabeling has the fields of both ways to configure Prometheus.
type relabeling struct {
	Action       string   `json:"action"`
	SourceLabels []string `json:"sourceLabels"`
	TargetLabel  string   `json:"targetLabel"`
	Regex        string   `json:"regex"`
	Replacement  *string  `json:"replacement"`
}

func (r *relabeling) config() *relabel.Config {
	c := relabel.DefaultRelabelConfig
	c.TargetLabel, c.NameValidationScheme = r.TargetLabel, model.UTF8Validation
	if r.Action != "" {
		c.Action = relabel.Action(r.Action)
	}
	for _, l := range r.SourceLabels {
		c.SourceLabels = append(c.SourceLabels, model.LabelName(l))
	}
	if r.Regex != "" {
		c.Regex = relabel.MustNewRegexp(r.Regex)
	}
	if r.Replacement != nil {
		c.Replacement = *r.Replacement
	}
	return &c
}

// monitorScrape reads the PodMonitor. prometheus-operator sets labels of the target before its relabelings.
func monitorScrape(t *testing.T) exporterScrape {
	t.Helper()
	var monitor struct {
		Spec struct {
			PodMetricsEndpoints []struct {
				HonorLabels       bool         `json:"honorLabels"`
				Relabelings       []relabeling `json:"relabelings"`
				MetricRelabelings []relabeling `json:"metricRelabelings"`
			} `json:"podMetricsEndpoints"`
		} `json:"spec"`
	}
	readYAML(t, "prometheus/worker/exporter.yaml", &monitor)
	e := monitor.Spec.PodMetricsEndpoints[0]
	var before []relabeling
	for name, meta := range map[string]string{"namespace": "namespace", "pod": "pod_name", "container": "pod_container_name"} {
		before = append(before, relabeling{SourceLabels: []string{"__meta_kubernetes_" + meta}, TargetLabel: name})
	}
	return exporterScrape{e.HonorLabels, append(before, e.Relabelings...), e.MetricRelabelings}
}

// jobScrape reads the job in the example of a configuration file.
func jobScrape(t *testing.T) exporterScrape {
	t.Helper()
	var file struct {
		ScrapeConfigs []struct {
			JobName              string       `json:"jobName"`
			HonorLabels          bool         `json:"honorLabels"`
			RelabelConfigs       []relabeling `json:"relabelConfigs"`
			MetricRelabelConfigs []relabeling `json:"metricRelabelConfigs"`
		} `json:"scrapeConfigs"`
	}
	readYAML(t, "prometheus/prometheus.yaml", &file)
	for _, c := range file.ScrapeConfigs {
		if c.JobName == "plimsoll-exporter" {
			return exporterScrape{c.HonorLabels, c.RelabelConfigs, c.MetricRelabelConfigs}
		}
	}
	t.Fatal("no job plimsoll-exporter")
	return exporterScrape{}
}

var snakeCase = regexp.MustCompile(`(?m)[a-z]+(_[a-z]+)+:`)

// readYAML reads a file whose fields may be in snake case.
func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	camel := snakeCase.ReplaceAllStringFunc(string(text), func(name string) string {
		words := strings.Split(name, "_")
		for i, w := range words[1:] {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
		return strings.Join(words, "")
	})
	if err := yaml.Unmarshal([]byte(camel), into); err != nil {
		t.Fatal(err)
	}
}

// scraped returns the series that Prometheus stores of an exposition by a pod on node n1, without the label
// instance.
func (s *exporterScrape) scraped(t *testing.T, exposition string) []string {
	t.Helper()
	target := labels.NewBuilder(labels.FromStrings("job", "plimsoll-exporter", "__meta_kubernetes_pod_node_name", "n1", "__meta_kubernetes_namespace", "plimsoll-exporter",
		"__meta_kubernetes_pod_name", "exporter-x", "__meta_kubernetes_pod_container_name", "exporter", "__meta_kubernetes_pod_container_port_name", "metrics",
		"__meta_kubernetes_pod_label_app_kubernetes_io_name", "plimsoll-exporter"))
	if !relabel.ProcessBuilder(target, configs(s.Relabelings)...) {
		t.Fatal("the target is dropped")
	}
	var found []string
	for line := range strings.Lines(exposition) {
		series, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		exposed, err := parser.NewParser(parser.Options{}).ParseMetric(series)
		if err != nil {
			t.Fatal(err)
		}
		l := labels.NewBuilder(exposed)
		target.Labels().Range(func(of labels.Label) { s.addTargetLabel(l, of) })
		if relabel.ProcessBuilder(l, configs(s.Metrics)...) {
			found = append(found, l.Get("__name__")+l.Del("__name__").Labels().String())
		}
	}
	slices.Sort(found)
	return found
}

// addTargetLabel adds a label of the target to a series, as Prometheus's scrape does.
func (s *exporterScrape) addTargetLabel(series *labels.Builder, of labels.Label) {
	exposed := series.Get(of.Name)
	switch {
	case strings.HasPrefix(of.Name, "__"), exposed != "" && s.HonorLabels:
		return
	case exposed != "":
		name := "exported_" + of.Name
		for series.Get(name) != "" {
			name = "exported_" + name
		}
		series.Set(name, exposed)
	}
	series.Set(of.Name, of.Value)
}

func configs(list []relabeling) []*relabel.Config {
	var all []*relabel.Config
	for i := range list {
		all = append(all, list[i].config())
	}
	return all
}

// Whatever a pod exposes, its series are about its own node, name no cluster, and are of the exporter. They
// keep the labels that name the pod which holds a device.
func TestExporterReportsOnlyAboutItsNode(t *testing.T) {
	for name, s := range map[string]exporterScrape{"PodMonitor": monitorScrape(t), "configuration file": jobScrape(t)} {
		t.Run(name, func(t *testing.T) {
			got := s.scraped(t, `plimsoll_node_devices{node="n1",resource="nvidia.com/gpu",model="m",state="free"} 8
plimsoll_node_devices{node="n2",cluster="other",job="kube-state-metrics",exported_node="n3",resource="nvidia.com/gpu",model="m",state="allocatable"} 8
plimsoll_device_owner_info{node="n1",uuid="u",namespace="ml",pod="p",container="c"} 1
plimsoll_exporter_driver_stalled 0
DCGM_FI_DEV_GPU_UTIL{Hostname="n2",UUID="u",namespace="ml",pod="p",container="c"} 1
DCGM_FI_DEV_GPU_UTIL_RATIO{hostname="n2",UUID="u"} 1
DCGM_FI_DEV_FB_USED{UUID="u"} 1
dcgm_gpu_utilization{UUID="u"} 1
plimsoll_build_info{component="exporter",version="1"} 1
plimsoll_build_info{component="operator",version="1"} 1
kube_node_status_allocatable{node="n1",resource="nvidia_com_gpu",unit="integer"} 1000000
node_resource_model:plimsoll_free_devices:placeable{node="n1",resource="nvidia.com/gpu",model="m"} 1000000
cluster:plimsoll_sample_timestamp_seconds:min 1
kueue_cluster_queue_nominal_quota{cluster_queue="gpu"} 1000000
plimsoll_gate_doubted{cluster="c"} 1
`)
			if diff := cmp.Diff([]string{
				`DCGM_FI_DEV_FB_USED{UUID="u", job="plimsoll-exporter", node="n1"}`,
				`DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="u", hostname="n1", job="plimsoll-exporter", node="n1"}`,
				`DCGM_FI_DEV_GPU_UTIL{Hostname="n1", UUID="u", container="c", job="plimsoll-exporter", namespace="ml", node="n1", pod="p"}`,
				`dcgm_gpu_utilization{UUID="u", job="plimsoll-exporter", node="n1"}`,
				`plimsoll_build_info{component="exporter", job="plimsoll-exporter", node="n1", version="1"}`,
				`plimsoll_device_owner_info{container="c", job="plimsoll-exporter", namespace="ml", node="n1", pod="p", uuid="u"}`,
				`plimsoll_exporter_driver_stalled{job="plimsoll-exporter", node="n1"}`,
				`plimsoll_node_devices{job="plimsoll-exporter", model="m", node="n1", resource="nvidia.com/gpu", state="allocatable"}`,
				`plimsoll_node_devices{job="plimsoll-exporter", model="m", node="n1", resource="nvidia.com/gpu", state="free"}`,
			}, got); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}

// No metric of the exporter is left out.
func TestEveryMetricOfTheExporterIsScraped(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "exporter", "METRICS.md"))
	if err != nil {
		t.Fatal(err)
	}
	exposition, names := "", 0
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-zA-Z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		exposition += m[1] + " 1\n"
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "promhttp_metric_handler_requests_total", "plimsoll_build_info"} {
		exposition += name + " 1\n"
	}
	want := map[string]bool{}
	for line := range strings.Lines(exposition) {
		want[strings.TrimSuffix(line, " 1\n")] = true
		names++
	}
	for name, s := range map[string]exporterScrape{"PodMonitor": monitorScrape(t), "configuration file": jobScrape(t)} {
		missing := maps.Clone(want)
		for _, series := range s.scraped(t, exposition) {
			metric, _, _ := strings.Cut(series, "{")
			delete(missing, metric)
		}
		if len(missing) > 0 || names < 150 {
			t.Errorf("%s: of %d metrics, these are not scraped: %v", name, names, slices.Sorted(maps.Keys(missing)))
		}
	}
}

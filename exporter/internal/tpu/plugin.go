package tpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// pluginMetrics are the metrics read from GKE's device plugin.
var pluginMetrics = map[string]device.Field{
	"tensorcore_utilization_node":       device.TensorCoreUtil,
	"memory_bandwidth_utilization_node": device.MemoryBandwidthUtil,
}

// maxPluginBytes limits the size of the plugin's response.
const maxPluginBytes = 4 << 20

// readPlugin reads the metrics of the device plugin at url. It returns the values of each
// chip by field, and the state of the plugin.
func readPlugin(ctx context.Context, url string, chips int) (map[device.Field][]float64, *device.Service) {
	service := &device.Service{Name: "plugin", Address: url, State: device.ServiceServing}
	families, err := scrapePlugin(ctx, url)
	if err != nil {
		service.State, service.Err = device.ServiceFailed, err
		return nil, service
	}
	values := map[device.Field][]float64{}
	for name, field := range pluginMetrics {
		family := families[name]
		if family == nil {
			service.Err = errors.Join(service.Err, fmt.Errorf("%s has no metric %s", url, name))
			continue
		}
		var samples []sample
		for _, m := range family.Metric {
			samples = append(samples, sample{acceleratorNumber(m), metricValue(m)})
		}
		assigned, err := assignSamples(samples, chips, 1)
		if err != nil {
			service.State, service.Err = device.ServiceFailed, errors.Join(service.Err, fmt.Errorf("metric %s of %s: %w", name, url, err))
			continue
		}
		for _, v := range assigned {
			values[field] = append(values[field], v[0])
		}
	}
	return values, service
}

// scrapePlugin returns the metric families of the device plugin.
func scrapePlugin(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("--tpu-plugin-metrics must be a URL such as http://localhost:2112/metrics: %w", err)
	}
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("scrape the device plugin: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape the device plugin: %s returned %s", url, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxPluginBytes+1))
	if err != nil {
		return nil, fmt.Errorf("scrape the device plugin: %w", err)
	}
	if len(text) > maxPluginBytes {
		return nil, fmt.Errorf("scrape the device plugin: the response of %s exceeds %d MiB", url, maxPluginBytes>>20)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("scrape the device plugin: %w", err)
	}
	return families, nil
}

// acceleratorNumber returns the device number at the end of the label accelerator_id, or -1
// without a number.
func acceleratorNumber(m *dto.Metric) int64 {
	for _, l := range m.Label {
		if l.GetName() == "accelerator_id" {
			id := l.GetValue()
			if n, err := strconv.ParseInt(id[strings.LastIndex(id, "-")+1:], 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// metricValue returns the value of a gauge or of a metric without type.
func metricValue(m *dto.Metric) float64 {
	if m.Untyped != nil {
		return m.Untyped.GetValue()
	}
	return m.GetGauge().GetValue()
}

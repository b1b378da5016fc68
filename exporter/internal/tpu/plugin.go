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

// relayed are the metrics of GKE's device plugin that the runtime does not have.
var relayed = map[string]device.Field{
	"tensorcore_utilization_node":       device.TensorCoreUtil,
	"memory_bandwidth_utilization_node": device.MemoryBandwidthUtil,
}

// most of the plugin's answer that is read.
const most = 4 << 20

// relay what the device plugin tells of each chip.
func relay(ctx context.Context, url string, chips []chip) (map[device.Field][]float64, *device.Service) {
	service := &device.Service{Name: "plugin", Address: url, State: device.ServiceServing}
	families, err := scrape(ctx, url)
	if err != nil {
		service.State, service.Err = device.ServiceFailed, err
		return nil, service
	}
	out := map[device.Field][]float64{}
	for name, field := range relayed {
		family := families[name]
		if family == nil {
			service.Err = errors.Join(service.Err, fmt.Errorf("%s has no %s", url, name))
			continue
		}
		var values []sample
		for _, m := range family.Metric {
			values = append(values, sample{acceleratorNumber(m), valueOf(m)})
		}
		placed, err := place(values, len(chips), 1)
		if err != nil {
			service.State, service.Err = device.ServiceFailed, errors.Join(service.Err, fmt.Errorf("%s of %s: %w", name, url, err))
			continue
		}
		for _, v := range placed {
			out[field] = append(out[field], v[0])
		}
	}
	return out, service
}

func scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("--tpu-plugin-metrics must be a URL such as http://localhost:2112/metrics: %w", err)
	}
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the device plugin's metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the device plugin's metrics: %s answers %s", url, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err != nil {
		return nil, fmt.Errorf("the device plugin's metrics: %w", err)
	}
	if len(text) > most {
		return nil, fmt.Errorf("the device plugin's metrics: %s answers more than %d MiB", url, most>>20)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("the device plugin's metrics: %w", err)
	}
	return families, nil
}

// acceleratorNumber is the device's, which ends its accelerator_id.
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

func valueOf(m *dto.Metric) float64 {
	if m.Untyped != nil {
		return m.Untyped.GetValue()
	}
	return m.GetGauge().GetValue()
}

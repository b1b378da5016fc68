package tpu

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"plimsoll.dev/plimsoll/exporter/internal/tpu/tpupb"
)

// FuzzDecodeResponse checks that decoding ends for any response, without a panic.
func FuzzDecodeResponse(f *testing.F) {
	for _, seed := range []*dynamicpb.Message{
		newMessage("MetricResponse", `metric{name:"a" `+gauges(3, "as_double", 1, 2)+gauges(-1, "as_int", 3)+`}`),
		newMessage("MetricResponse", `metric{metrics{attribute{value{kvlist_attr{attributes{key:"device_ordinal" value{string_attr:"7"}}}}} counter{as_int:7}}}`),
		newMessage("ListSupportedMetricsResponse", `supported_metric{metric_name:"a"}`),
		newMessage("GetTpuRuntimeStatusResponse", coreStates("1", "2")),
	} {
		b, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, response []byte) {
		metric, status := &tpupb.MetricResponse{}, &tpupb.GetTpuRuntimeStatusResponse{}
		if err := proto.Unmarshal(response, metric); err == nil {
			if samples := samplesOf(metric.GetMetric()); len(samples) > 0 {
				_, _ = assignSamples(samples, 4, 2) // must not panic; may return an error
			}
		}
		if err := proto.Unmarshal(response, status); err == nil {
			if cores, err := coresOf(status); err == nil {
				_, _ = assignCores(cores, 4) // must not panic; may return an error
			}
		}
	})
}

func TestDecodeMetricNumbers(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		want        []float64
	}{
		{"negative integer", "gauge{as_int:-1}", []float64{-1}},
		{"double", "gauge{as_double:-0.5}", []float64{-0.5}},
		{"boolean", "gauge{as_bool:true}", []float64{1}},
		{"integer counter", "counter{as_int:18446744073709551615}", []float64{1 << 64}},
		{"double counter", "counter{as_double:2}", []float64{2}},
		{"string is no number", `gauge{as_string:"7"}`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := proto.Marshal(newMessage("MetricResponse", `metric{metrics{`+tc.value+`}}`))
			if err != nil {
				t.Fatal(err)
			}
			response := &tpupb.MetricResponse{}
			err = proto.Unmarshal(b, response)
			got := samplesOf(response.GetMetric())
			if err != nil || len(got) != len(tc.want) || len(got) == 1 && got[0].value != tc.want[0] {
				t.Errorf("%s is decoded as %v, %v; want %v", tc.value, got, err, tc.want)
			}
		})
	}
}

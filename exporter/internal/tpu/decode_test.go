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

func TestDecodeDeviceNumbers(t *testing.T) {
	for attribute, want := range map[string]int64{
		`value{int_attr:3}`: 3, `value{string_attr:"3"}`: 3, ``: 0, `value{}`: 0, `value{string_attr:"x"}`: -1, `value{bool_attr:true}`: -1, `value{double_attr:3}`: -1,
		`value{kvlist_attr{attributes{key:"device_ordinal" value{int_attr:3}}}}`: 3, `value{kvlist_attr{attributes{key:"device_ordinal" value{string_attr:"3"}}}}`: 3,
		`value{kvlist_attr{attributes{key:"core" value{int_attr:3}}}}`: -1, `value{kvlist_attr{attributes{key:"device_ordinal"}}}`: -1,
	} {
		b, err := proto.Marshal(newMessage("MetricResponse", `metric{metrics{attribute{key:"device-id" `+attribute+`} gauge{as_int:1}}}`))
		if err != nil {
			t.Fatal(err)
		}
		response := &tpupb.MetricResponse{}
		err = proto.Unmarshal(b, response)
		if got := samplesOf(response.GetMetric()); err != nil || len(got) != 1 || got[0].device != want {
			t.Errorf("%q is device %v, %v; want %d", attribute, got, err, want)
		}
	}
	bare := &tpupb.TPUMetric{Metrics: []*tpupb.Metric{{Gauge: &tpupb.Gauge{Value: &tpupb.Gauge_AsInt{AsInt: 1}}}}}
	if got := samplesOf(bare); len(got) != 1 || got[0].device != -1 {
		t.Errorf("a metric without an attribute is of device %v, want -1", got)
	}
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
		{"NaN", "gauge{as_double:nan}", nil},
		{"infinity", "gauge{as_double:-inf}", nil},
		{"NaN of a counter", "counter{as_double:nan}", nil},
		{"no value", "gauge{}", nil},
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

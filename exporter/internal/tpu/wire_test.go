package tpu

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

// FuzzDecodeResponse checks that decoding ends for any response, and accepts every message
// accepted by the protobuf library.
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
	f.Fuzz(func(t *testing.T, response []byte) {
		original := bytes.Clone(response)
		_, samples, metricErr := decodeMetric(response)
		_, supportedErr := decodeSupportedMetrics(response)
		_, coresErr := decodeCores(response)
		if !bytes.Equal(original, response) {
			t.Error("decoding changes the response")
		}
		if len(samples) > 0 {
			_, _ = assignSamples(samples, 4, 2) // must not panic; may return an error
		}
		for name, got := range map[string]error{"MetricResponse": metricErr, "ListSupportedMetricsResponse": supportedErr, "GetTpuRuntimeStatusResponse": coresErr} {
			if err := proto.Unmarshal(response, newMessage(name, "")); err == nil && got != nil {
				t.Errorf("the protobuf library accepts a %s, decoding returns %v", name, got)
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
			_, got, err := decodeMetric(b)
			if err != nil || len(got) != len(tc.want) || len(got) == 1 && got[0].value != tc.want[0] {
				t.Errorf("%s is decoded as %v, %v; want %v", tc.value, got, err, tc.want)
			}
		})
	}
}

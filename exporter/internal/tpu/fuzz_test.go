package tpu

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Whatever a service answers, decoding ends; and what the protobuf library takes for
// an answer is one here as well.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []*dynamicpb.Message{
		message("MetricResponse", `metric{name:"a" `+values(3, "as_double", 1, 2)+values(-1, "as_int", 3)+`}`),
		message("MetricResponse", `metric{metrics{attribute{value{kvlist_attr{attributes{key:"device_ordinal" value{string_attr:"7"}}}}} counter{as_int:7}}}`),
		message("ListSupportedMetricsResponse", `supported_metric{metric_name:"a"}`),
		message("GetTpuRuntimeStatusResponse", pcs("1", "2")),
	} {
		b, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		untouched := bytes.Clone(answer)
		_, metrics, err := samples(answer)
		_, err2 := supported(answer)
		_, err3 := cores(answer)
		if !bytes.Equal(untouched, answer) {
			t.Error("decoding changes the answer")
		}
		if len(metrics) > 0 {
			_, _ = place(metrics, 4, 2) // any error is well
		}
		for name, got := range map[string]error{"MetricResponse": err, "ListSupportedMetricsResponse": err2, "GetTpuRuntimeStatusResponse": err3} {
			if theirs := proto.Unmarshal(answer, message(name, "")); theirs == nil && got != nil {
				t.Errorf("the protobuf library reads it as a %s, here it is %v", name, got)
			}
		}
	})
}

func TestNumbersOfEveryKind(t *testing.T) {
	for text, want := range map[string]float64{
		"gauge{as_int:-1}": -1, "gauge{as_double:-0.5}": -0.5, "gauge{as_bool:true}": 1, "counter{as_int:18446744073709551615}": 1 << 64, "counter{as_double:2}": 2,
	} {
		b, err := proto.Marshal(message("MetricResponse", `metric{metrics{`+text+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, got, err := samples(b); err != nil || len(got) != 1 || got[0].value != want {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
	b, err := proto.Marshal(message("MetricResponse", `metric{metrics{gauge{as_string:"7"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := samples(b); err != nil || len(got) != 0 {
		t.Errorf("a text is read as the number %v, %v", got, err)
	}
}

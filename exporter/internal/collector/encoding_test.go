package collector

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"google.golang.org/protobuf/proto"
)

// oddFamilies contain every kind of number, and text that needs escaping.
var oddFamilies = []*family{
	{name: "a_ratio", help: "A \\ \"quoted\"\nhelp.", kind: gauge, series: func() (out []series) {
		for i, v := range []float64{0, 1, -1, 0.1, 42, 1e6, 1e21, 123456789, 1e-9, math.Pi, math.MaxFloat64, math.NaN(), math.Inf(1), math.Inf(-1)} {
			out = append(out, series{formatLabels([]label{{"n", strconv.Itoa(i)}, {"odd", "a\"b\\c\nd é, {}=#"}}), v})
		}
		return out
	}()},
	{name: "b_total", help: "Counts.", kind: counter, series: []series{{formatLabels([]label{{"n", "0"}}), 3}}},
	{name: "c_bare", help: "No labels.", kind: gauge, series: []series{{formatLabels(nil), 7}}},
}

// encodeWithPrometheus encodes the families with Prometheus' library.
func encodeWithPrometheus(t *testing.T, families []*family, format expfmt.Format) string {
	t.Helper()
	var b bytes.Buffer
	encoder := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		out := &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: f.kind.Enum()}
		for i, s := range f.series {
			m := &dto.Metric{}
			if f.name == "a_ratio" {
				m.Label = []*dto.LabelPair{{Name: proto.String("n"), Value: proto.String(strconv.Itoa(i))}, {Name: proto.String("odd"), Value: proto.String("a\"b\\c\nd é, {}=#")}}
			}
			if f.name == "b_total" {
				m.Label = []*dto.LabelPair{{Name: proto.String("n"), Value: proto.String(strconv.Itoa(i))}}
			}
			if f.kind == counter {
				m.Counter = &dto.Counter{Value: &s.value}
			} else {
				m.Gauge = &dto.Gauge{Value: &s.value}
			}
			out.Metric = append(out.Metric, m)
		}
		if err := encoder.Encode(out); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestWriteMatchesPrometheusLibrary(t *testing.T) {
	for format, tf := range map[expfmt.Format]*textFormat{expfmt.NewFormat(expfmt.TypeTextPlain): plainText, expfmt.NewFormat(expfmt.TypeOpenMetrics): openMetrics} {
		t.Run(string(format), func(t *testing.T) {
			var got bytes.Buffer
			tf.write(&got, oddFamilies)
			if diff := cmp.Diff(encodeWithPrometheus(t, oddFamilies, format), got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// As a counter of OpenMetrics, the metric would need the suffix _total, and every panel
// with dcgm-exporter's name would be empty.
func TestOpenMetricsKeepsNamesOfDCGMCounters(t *testing.T) {
	var got bytes.Buffer
	openMetrics.write(&got, []*family{{name: "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", help: "Retries.", kind: counter, series: []series{{`{gpu="0"}`, 2}}}})
	want := "# HELP DCGM_FI_DEV_PCIE_REPLAY_COUNTER Retries.\n# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER unknown\nDCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu=\"0\"} 2.0\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestFormatLabelsReplacesInvalidUTF8(t *testing.T) {
	if got := formatLabels([]label{{"modelName", "Tesla\xff T4"}}); got != "{modelName=\"Tesla\uFFFD T4\"}" {
		t.Errorf("%s", got)
	}
}

// FuzzLabelValue checks that Prometheus' parsers accept every label value in both formats, and
// read the same text back except for invalid UTF-8. Tenants choose the text of some labels: the API
// server accepts a NUL in the owner reference of a pod.
func FuzzLabelValue(f *testing.F) {
	for _, value := range []string{"", "a\x00b", "a\"b\\c\nd", "\xff\x7f\t\r", "\u0085\u2028é", "\\n"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		families := []*family{{name: "a", help: "Help.", kind: gauge, series: []series{{formatLabels([]label{{"x", value}, {"y", "1"}}), 1}}}}
		for contentType, tf := range map[string]*textFormat{"text/plain": plainText, "application/openmetrics-text": openMetrics} {
			var text bytes.Buffer
			tf.write(&text, families)
			text.WriteString(tf.end)
			parser, err := textparse.New(text.Bytes(), contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got labels.Labels
			for err == nil {
				var entry textparse.Entry
				if entry, err = parser.Next(); err == nil && entry == textparse.EntrySeries {
					parser.Labels(&got)
				}
			}
			if !errors.Is(err, io.EOF) || got.Get("y") != "1" || got.Get("x") != strings.ToValidUTF8(value, "\uFFFD") {
				t.Errorf("%s: %v, labels %s of\n%q", contentType, err, got, text.String())
			}
		}
	})
}

func TestDropDuplicatesKeepsFirstSeries(t *testing.T) {
	families := []*family{{name: "a", series: []series{{`{x="1"}`, 1}, {`{x="2"}`, 2}, {`{x="1"}`, 3}}}, {name: "b", series: []series{{`{x="1"}`, 1}}}}
	duplicates := dropDuplicates(families)
	if diff := cmp.Diff([]string{"a"}, duplicates); diff != "" {
		t.Error(diff)
	}
	if len(families[0].series) != 2 || families[0].series[0].value != 1 || len(families[1].series) != 1 {
		t.Errorf("%v %v", families[0].series, families[1].series)
	}
}

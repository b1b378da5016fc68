package collector

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// family is a metric with its series.
type family struct {
	name, help string
	kind       dto.MetricType
	series     []series
}

// series is one series of a family. Families with the same labels share the formatted text.
type series struct {
	labels labelText
	value  float64
}

// label is a label of a series. The order of labels is the order in the output.
type label struct{ name, value string }

// pairs combines label names and values.
func pairs(names, values []string) []label {
	out := make([]label, len(names))
	for i, name := range names {
		out[i] = label{name, values[i]}
	}
	return out
}

// labelText are the formatted labels of a series, the same in both text formats: {gpu="0",…}.
type labelText string

var escapeValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// formatLabels formats and escapes labels. Invalid UTF-8 becomes U+FFFD, because
// Prometheus would reject the whole scrape.
func formatLabels(labels []label) labelText {
	if len(labels) == 0 {
		return ""
	}
	b := make([]byte, 0, 512)
	for i, l := range labels {
		b = append(b, "{,"[min(i, 1)])
		b = append(b, l.name...)
		b = append(b, `="`...)
		if needsNoEscaping(l.value) {
			b = append(b, l.value...)
		} else {
			b = append(b, escapeValue.Replace(strings.ToValidUTF8(l.value, "\uFFFD"))...)
		}
		b = append(b, '"')
	}
	return labelText(append(b, '}'))
}

// needsNoEscaping reports whether s is printable ASCII without quotes and backslashes.
func needsNoEscaping(s string) bool {
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' || s[i] < ' ' || s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// append returns the text with more labels at the end.
func (t labelText) append(more ...label) labelText {
	if t == "" {
		return formatLabels(more)
	}
	return t[:len(t)-1] + "," + formatLabels(more)[1:]
}

// textFormat is a text format of Prometheus.
type textFormat struct {
	writeHeader   func(b *bytes.Buffer, f *family)
	appendNumber  func(b []byte, v float64) []byte
	writeGathered func(b *bytes.Buffer, f *dto.MetricFamily) (int, error) // a family of a registry
	end           string
}

var escapeHelp = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

// plainText is the Prometheus text format 0.0.4.
var plainText = &textFormat{
	writeHeader: func(b *bytes.Buffer, f *family) {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", f.name, escapeHelp.Replace(f.help), f.name, strings.ToLower(f.kind.String()))
	},
	appendNumber:  appendNumber,
	writeGathered: func(b *bytes.Buffer, f *dto.MetricFamily) (int, error) { return expfmt.MetricFamilyToText(b, f) },
}

// openMetrics is the text format OpenMetrics 1.0. It requires that the series of a counter
// end in _total. Counters of dcgm-exporter without this suffix keep their names and have
// type unknown.
var openMetrics = &textFormat{
	writeHeader: func(b *bytes.Buffer, f *family) {
		name, kind := f.name, strings.ToLower(f.kind.String())
		if f.kind == counter {
			var total bool
			if name, total = strings.CutSuffix(name, "_total"); !total {
				kind = "unknown"
			}
		}
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, escapeValue.Replace(f.help), name, kind)
	},
	appendNumber: func(b []byte, v float64) []byte {
		start := len(b)
		if b = appendNumber(b, v); !bytes.ContainsAny(b[start:], ".eIN") {
			b = append(b, ".0"...)
		}
		return b
	},
	writeGathered: func(b *bytes.Buffer, f *dto.MetricFamily) (int, error) { return expfmt.MetricFamilyToOpenMetrics(b, f) },
	end:           "# EOF\n",
}

func appendNumber(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// write writes the families.
func (tf *textFormat) write(b *bytes.Buffer, families []*family) {
	for _, f := range families {
		tf.writeHeader(b, f)
		for _, s := range f.series {
			b.WriteString(f.name)
			b.WriteString(string(s.labels))
			b.WriteByte(' ')
			b.Write(tf.appendNumber(b.AvailableBuffer(), s.value))
			b.WriteByte('\n')
		}
	}
}

// estimateSize returns the approximate size of the formatted families in bytes.
func estimateSize(families []*family) (n int) {
	for _, f := range families {
		n += 64 + 2*len(f.name) + len(f.help)
		for _, s := range f.series {
			n += len(f.name) + len(s.labels) + 20
		}
	}
	return n
}

// dropDuplicates removes series whose labels occur twice in a family, because Prometheus
// would reject them. It returns the names of the families with duplicates. A family with
// the same labels as the previous family needs no check.
func dropDuplicates(families []*family) (duplicates []string) {
	seen, checked := make(map[labelText]bool, 1024), []series(nil)
	for _, f := range families {
		if slices.EqualFunc(f.series, checked, func(a, b series) bool { return a.labels == b.labels }) {
			continue
		}
		clear(seen)
		n := len(f.series)
		f.series = slices.DeleteFunc(f.series, func(s series) bool {
			duplicate := seen[s.labels]
			seen[s.labels] = true
			return duplicate
		})
		if checked = f.series; len(checked) < n {
			duplicates = append(duplicates, f.name)
		}
	}
	return duplicates
}

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

// family is one metric as of a collection.
type family struct {
	name, help string
	kind       dto.MetricType
	series     []series
}

// series of a family; its labels are written once for all families that share them.
type series struct {
	labels labelText
	value  float64
}

// label of a series, in the order in which it is written.
type label struct{ name, value string }

func pairs(names, values []string) []label {
	out := make([]label, len(names))
	for i, name := range names {
		out[i] = label{name, values[i]}
	}
	return out
}

// labelText is a series' labels as both text formats write them: {gpu="0",…}.
type labelText string

var escapeValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// text escapes the labels. Bytes that are no UTF-8, for which Prometheus would
// refuse the whole scrape, become U+FFFD.
func text(labels []label) labelText {
	if len(labels) == 0 {
		return ""
	}
	b := make([]byte, 0, 512)
	for i, l := range labels {
		b = append(b, "{,"[min(i, 1)])
		b = append(b, l.name...)
		b = append(b, `="`...)
		if usual(l.value) {
			b = append(b, l.value...)
		} else {
			b = append(b, escapeValue.Replace(strings.ToValidUTF8(l.value, "\uFFFD"))...)
		}
		b = append(b, '"')
	}
	return labelText(append(b, '}'))
}

// usual texts have nothing to escape.
func usual(s string) bool {
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' || s[i] < ' ' || s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// with further labels after those that are there.
func (t labelText) with(more ...label) labelText {
	if t == "" {
		return text(more)
	}
	return t[:len(t)-1] + "," + text(more)[1:]
}

// dialect is a text format of Prometheus.
type dialect struct {
	header  func(b *bytes.Buffer, f *family)
	number  func(b []byte, v float64) []byte
	foreign func(b *bytes.Buffer, f *dto.MetricFamily) (int, error) // writes what others measured
	end     string
}

var escapeHelp = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

// plainText is the text format 0.0.4.
var plainText = &dialect{
	header: func(b *bytes.Buffer, f *family) {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", f.name, escapeHelp.Replace(f.help), f.name, strings.ToLower(f.kind.String()))
	},
	number:  appendNumber,
	foreign: func(b *bytes.Buffer, f *dto.MetricFamily) (int, error) { return expfmt.MetricFamilyToText(b, f) },
}

// openMetrics is the text format OpenMetrics 1.0. There a counter's series end in _total; one of
// dcgm-exporter's that does not is of unknown type, for it must keep its name.
var openMetrics = &dialect{
	header: func(b *bytes.Buffer, f *family) {
		name, kind := f.name, strings.ToLower(f.kind.String())
		if f.kind == counter {
			var total bool
			if name, total = strings.CutSuffix(name, "_total"); !total {
				kind = "unknown"
			}
		}
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, escapeValue.Replace(f.help), name, kind)
	},
	number: func(b []byte, v float64) []byte {
		start := len(b)
		if b = appendNumber(b, v); !bytes.ContainsAny(b[start:], ".eIN") {
			b = append(b, ".0"...)
		}
		return b
	},
	foreign: func(b *bytes.Buffer, f *dto.MetricFamily) (int, error) { return expfmt.MetricFamilyToOpenMetrics(b, f) },
	end:     "# EOF\n",
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

// write the families.
func (d *dialect) write(b *bytes.Buffer, families []*family) {
	for _, f := range families {
		d.header(b, f)
		for _, s := range f.series {
			b.WriteString(f.name)
			b.WriteString(string(s.labels))
			b.WriteByte(' ')
			b.Write(d.number(b.AvailableBuffer(), s.value))
			b.WriteByte('\n')
		}
	}
}

// size is about how many bytes the families take.
func size(families []*family) (n int) {
	for _, f := range families {
		n += 64 + 2*len(f.name) + len(f.help)
		for _, s := range f.series {
			n += len(f.name) + len(s.labels) + 20
		}
	}
	return n
}

// unique drops series that are there twice, which a registry would refuse, and
// names their families. One with the labels of the family before needs no look.
func unique(families []*family) (twice []string) {
	seen, good := make(map[labelText]bool, 1024), []series(nil)
	for _, f := range families {
		if slices.EqualFunc(f.series, good, func(a, b series) bool { return a.labels == b.labels }) {
			continue
		}
		clear(seen)
		n := len(f.series)
		f.series = slices.DeleteFunc(f.series, func(s series) bool {
			was := seen[s.labels]
			seen[s.labels] = true
			return was
		})
		if good = f.series; len(good) < n {
			twice = append(twice, f.name)
		}
	}
	return twice
}

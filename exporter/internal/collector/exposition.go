package collector

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
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
	var b strings.Builder
	for i, l := range labels {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(l.name)
		b.WriteString(`="`)
		b.WriteString(escapeValue.Replace(strings.ToValidUTF8(l.value, "\uFFFD")))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return labelText(b.String())
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
	header func(b *bytes.Buffer, f *family)
	number func(b []byte, v float64) []byte
}

var escapeHelp = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

// plainText is the text format 0.0.4.
var plainText = &dialect{
	header: func(b *bytes.Buffer, f *family) {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", f.name, escapeHelp.Replace(f.help), f.name, strings.ToLower(f.kind.String()))
	},
	number: appendNumber,
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

// unique drops series that are there twice, which a registry would refuse, and
// names their families.
func unique(families []*family) (twice []string) {
	seen := map[labelText]bool{}
	for _, f := range families {
		clear(seen)
		n := len(f.series)
		f.series = slices.DeleteFunc(f.series, func(s series) bool {
			was := seen[s.labels]
			seen[s.labels] = true
			return was
		})
		if len(f.series) < n {
			twice = append(twice, f.name)
		}
	}
	return twice
}

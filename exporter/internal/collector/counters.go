package collector

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Counter is a line of a counter file in dcgm-exporter's form: which field is
// exposed, as which type (gauge, counter, or label for one that is put on the
// others), and its help text.
type Counter struct{ Name, Type, Help string }

// ParseCounters reads a counter file. Lines that begin with # are comments. The
// error names the line.
func ParseCounters(r io.Reader) ([]Counter, error) {
	reader := csv.NewReader(r)
	reader.Comment, reader.TrimLeadingSpace, reader.FieldsPerRecord = '#', true, -1
	var out []Counter
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := reader.FieldPos(0)
		if len(record) < 3 {
			return nil, fmt.Errorf("line %d must be NAME, TYPE, HELP, not %q", line, strings.Join(record, ","))
		}
		c := Counter{strings.TrimSpace(record[0]), strings.TrimSpace(record[1]), strings.TrimSpace(strings.Join(record[2:], ", "))}
		switch {
		case c.Name == "":
			return nil, fmt.Errorf("line %d names no field", line)
		case c.Type != "gauge" && c.Type != "counter" && c.Type != "label":
			return nil, fmt.Errorf("line %d: the type of %s must be gauge, counter or label, not %q", line, c.Name, c.Type)
		case slices.ContainsFunc(out, func(o Counter) bool { return o.Name == c.Name }):
			return nil, fmt.Errorf("line %d: %s is there twice", line, c.Name)
		}
		out = append(out, c)
	}
}

// selection is what is exposed in dcgm-exporter's words.
type selection struct {
	fields      []field
	xid         *field // nil when the latched XID is not asked for
	counted     []counted
	labels      []labelField
	unsupported []string
}

var latchedXID = field{name: xidErrors.name, kind: gauge, help: xidErrors.help}

// everything that this exporter can give.
func everything() *selection {
	return &selection{fields: fields, xid: &latchedXID, counted: countedEvents, labels: labelFields[:1]}
}

// byDefault are the fields that dcgm-exporter exposes without a counter file of the
// user's own, beside the latched XID and the driver's version as a label.
var byDefault = []string{
	"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_GPU_TEMP",
	"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
	"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL",
	"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_FAILURE",
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES",
}

func defaults() *selection {
	s := everything()
	s.counted = nil
	s.fields = slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return !slices.Contains(byDefault, f.name) })
	return s
}

func choose(counters []Counter) *selection {
	s := &selection{}
	for _, c := range counters {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == c.Name })
		event := slices.IndexFunc(countedEvents, func(e counted) bool { return e.name == c.Name })
		switch {
		case c.Type == "label" && slices.ContainsFunc(labelFields, c.names):
			s.labels = append(s.labels, labelFields[slices.IndexFunc(labelFields, c.names)])
		case c.Type != "label" && event >= 0:
			e := countedEvents[event]
			e.field = c.apply(e.field)
			s.counted = append(s.counted, e)
		case c.Type == "label", i < 0 && c.Name != latchedXID.name:
			s.unsupported = append(s.unsupported, c.Name)
		case i < 0:
			f := c.apply(latchedXID)
			s.xid = &f
		default:
			s.fields = append(s.fields, c.apply(fields[i]))
		}
	}
	slices.SortFunc(s.labels, func(a, b labelField) int { return strings.Compare(a.name, b.name) })
	return s
}

func (c Counter) names(l labelField) bool { return c.Name == l.name }

// apply the type and help text of the file.
func (c Counter) apply(f field) field {
	f.help, f.kind = c.Help, gauge
	if c.Type == "counter" {
		f.kind = counter
	}
	return f
}

// SetCounters exposes what a counter file asks, from the next collection on, and
// returns the fields that this exporter can't give.
func (c *Collector) SetCounters(counters []Counter) (unsupported []string) {
	s := choose(counters)
	c.selected.Store(s)
	return s.unsupported
}

// SetDefaults exposes what dcgm-exporter does by default, from the next collection on.
func (c *Collector) SetDefaults() { c.selected.Store(defaults()) }

// SetEverything exposes all that this exporter can give, from the next collection
// on, as a new Collector does.
func (c *Collector) SetEverything() { c.selected.Store(everything()) }

// Coverage of dcgm-exporter's metrics by a reading: how many it gives, and the
// names of those that it lacks.
func Coverage(r device.Reading) (gives int, lacks []string) {
	for _, f := range fields {
		if _, ok := r.Get(f.field); ok {
			gives++
		} else {
			lacks = append(lacks, f.name)
		}
	}
	return gives, lacks
}

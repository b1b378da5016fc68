package collector

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Counter is a line of a counter file in dcgm-exporter's format: the name of a field, its
// type (gauge, counter, or label for a label on the other metrics), and its help text.
type Counter struct{ Name, Type, Help string }

// maxCounters is the number of fields that a counter file may select. DCGM has fewer than
// half as many fields.
const maxCounters = 2000

// ParseCounters parses a counter file. Lines that start with # are comments, and a byte
// order mark is ignored. If a field is repeated, the first line counts, as in dcgm-exporter,
// and repeated contains its name. Errors contain the line number.
func ParseCounters(text string) (counters []Counter, repeated []string, err error) {
	reader := csv.NewReader(strings.NewReader(printable(strings.TrimPrefix(text, "\uFEFF"))))
	reader.Comment, reader.TrimLeadingSpace, reader.FieldsPerRecord = '#', true, -1
	seen := map[string]bool{}
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return counters, repeated, nil
		}
		if err != nil {
			return nil, nil, err
		}
		line, _ := reader.FieldPos(0)
		if len(record) < 3 {
			return nil, nil, fmt.Errorf("line %d must be NAME, TYPE, HELP, not %q", line, excerpt(strings.Join(record, ",")))
		}
		c := Counter{strings.TrimSpace(record[0]), strings.TrimSpace(record[1]), strings.TrimSpace(strings.Join(record[2:], ", "))}
		switch err := c.check(seen); {
		case errors.Is(err, errRepeated):
			repeated = append(repeated, excerpt(c.Name))
		case err != nil:
			return nil, nil, fmt.Errorf("line %d: %w", line, err)
		default:
			counters = append(counters, c)
		}
	}
}

// CheckCounters checks counters that do not come from a counter file.
func CheckCounters(counters []Counter) error {
	seen := map[string]bool{}
	for i, c := range counters {
		if err := c.check(seen); err != nil {
			return fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return nil
}

// errRepeated is the error of a field that was seen before.
var errRepeated = errors.New("duplicate field")

// check checks a counter and adds its name to those that were seen before.
func (c Counter) check(seen map[string]bool) error {
	switch {
	case c.Name == "":
		return errors.New("the name of the field is missing")
	case c.Type != "gauge" && c.Type != "counter" && c.Type != "label":
		return fmt.Errorf("the type of %s must be gauge, counter or label, not %q", excerpt(c.Name), excerpt(c.Type))
	case seen[c.Name]:
		return fmt.Errorf("%w %s", errRepeated, excerpt(c.Name))
	case len(seen) == maxCounters:
		return fmt.Errorf("a counter file must select at most %d fields", maxCounters)
	}
	seen[c.Name] = true
	return nil
}

// excerpt shortens a text for an error message.
func excerpt(text string) string {
	const limit = 100
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// printable replaces invalid UTF-8 and control characters other than white space.
// Prometheus would reject the whole scrape because of one such byte in a help text.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !strings.ContainsRune("\t\r\n", r) {
			return utf8.RuneError
		}
		return r
	}, text)
}

// selection is the set of dcgm-exporter's metrics to export.
type selection struct {
	fields      []dcgmField
	xids        []dcgmField // names of the last XID
	events      []countedEvent
	totals      []totalEvent
	labels      []labelField
	unsupported []string
}

// selectEverything selects every supported metric in a dialect.
func selectEverything(dialect string) *selection {
	s := selectFields(dialect, func(dcgmField) bool { return true })
	s.events, s.totals = countedEvents, totalEvents
	return s
}

// defaultFields are the fields of dcgm-exporter's default counter file. The file also
// selects the last XID, and the driver version as a label.
var defaultFields = []string{
	"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_GPU_TEMP",
	"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
	"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL",
	"DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED", nvlinkBandwidth, "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_FAILURE",
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES",
}

// defaultSince49 is in dcgm-exporter's default counter file since version 4.9.
const defaultSince49 = "DCGM_FI_DEV_FB_TOTAL"

// selectDefaults selects the metrics of dcgm-exporter's default counter file in a dialect.
func selectDefaults(dialect string) *selection {
	return selectFields(dialect, func(f dcgmField) bool {
		return slices.Contains(defaultFields, f.name) || dialect == Dialect49 && f.name == defaultSince49
	})
}

// selectFields selects fields, the last XID and the driver version in a dialect. Fields
// with the same name in the dialect are selected once.
func selectFields(dialect string, isSelected func(dcgmField) bool) *selection {
	s := &selection{}
	names := map[string]bool{}
	for _, f := range dcgmFields {
		if exported := f.inDialect(dialect); isSelected(f) && !names[exported.name] {
			names[exported.name] = true
			s.fields = append(s.fields, exported)
		}
	}
	s.xids = []dcgmField{lastXIDField.inDialect(dialect)}
	driver := labelFields[0]
	if dialect == Dialect49 {
		driver.name = currentNames[driver.name].name
	}
	s.labels = []labelField{driver}
	return s
}

func selectCounters(counters []Counter) *selection {
	s := &selection{}
	for _, c := range counters {
		field, isField := findField(c.Name)
		event := slices.IndexFunc(countedEvents, func(e countedEvent) bool { return e.name == c.Name })
		total := slices.IndexFunc(totalEvents, func(e totalEvent) bool { return e.name == c.Name })
		label, isLabel := findLabel(c.Name)
		switch {
		case c.Type == "label" && isLabel:
			s.labels = append(s.labels, label)
		case c.Type != "label" && event >= 0:
			e := countedEvents[event]
			e.dcgmField = c.applyTo(e.dcgmField)
			s.events = append(s.events, e)
		case c.Type != "label" && total >= 0:
			e := totalEvents[total]
			e.dcgmField = c.applyTo(e.dcgmField)
			s.totals = append(s.totals, e)
		case c.Type == "label" || !isField:
			s.unsupported = append(s.unsupported, c.Name)
		case field.route == lastXIDField.route:
			s.xids = append(s.xids, c.applyTo(field))
		default:
			s.fields = append(s.fields, c.applyTo(field))
		}
	}
	slices.SortFunc(s.labels, func(a, b labelField) int { return strings.Compare(a.name, b.name) })
	return s
}

// applyTo returns the field with the type and help text of the counter file.
func (c Counter) applyTo(f dcgmField) dcgmField {
	f.help, f.kind = printable(c.Help), gauge
	if c.Type == "counter" {
		f.kind = counter
	}
	return f
}

// SetCounters selects the metrics of a counter file from the next collection on. It
// returns the fields that this exporter does not support.
func (c *Collector) SetCounters(counters []Counter) (unsupported []string) {
	s := selectCounters(counters)
	c.selected.Store(s)
	return s.unsupported
}

// SetDefaults selects dcgm-exporter's default metrics from the next collection on.
func (c *Collector) SetDefaults() { c.selected.Store(selectDefaults(c.cfg.Labels.Dialect)) }

// SetEverything selects every supported metric from the next collection on. This is the
// selection of a new Collector.
func (c *Collector) SetEverything() { c.selected.Store(selectEverything(c.cfg.Labels.Dialect)) }

// Coverage returns how many of dcgm-exporter's metrics a reading provides, and the names
// of those that it lacks.
func Coverage(r device.Reading) (provided int, missing []string) {
	for _, f := range dcgmFields {
		if _, ok := r.Get(f.field); ok {
			provided++
		} else {
			missing = append(missing, f.name)
		}
	}
	return provided, missing
}

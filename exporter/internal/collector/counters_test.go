package collector

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestCounterFileSelectsFieldsTypesAndHelp(t *testing.T) {
	counters, _, err := ParseCounters(`# Format: NAME, TYPE, HELP

DCGM_FI_DEV_GPU_UTIL ,     gauge, How busy, in %.
  DCGM_FI_DEV_POWER_USAGE, counter, Power draw.
# DCGM_FI_DEV_SM_CLOCK,    gauge, Not wanted.
DCGM_FI_DRIVER_VERSION,    label, Driver Version
DCGM_FI_DEV_NAME,          label, Device Name
DCGM_FI_DEV_C2C_LINK_COUNT, gauge, Links.
`)
	if err != nil {
		t.Fatal(err)
	}
	f := setup(t)
	if diff := cmp.Diff([]string{"DCGM_FI_DEV_NAME", "DCGM_FI_DEV_C2C_LINK_COUNT"}, f.SetCounters(counters)); diff != "" {
		t.Errorf("unsupported: %s", diff)
	}
	families, text := f.collect(t)
	for _, want := range []string{
		"# HELP DCGM_FI_DEV_GPU_UTIL How busy, in %.", "# TYPE DCGM_FI_DEV_POWER_USAGE counter", `DCGM_FI_DRIVER_VERSION="580.1"`,
		`plimsoll_exporter_unsupported_field{node="node-1",field="DCGM_FI_DEV_C2C_LINK_COUNT"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing: %s\n%s", want, text)
		}
	}
	for _, name := range []string{"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_THERMAL_VIOLATION"} {
		if families[name] != nil {
			t.Errorf("%s is exported without being selected", name)
		}
	}
	if families["plimsoll_node_devices"] == nil {
		t.Error("a counter file removed Plimsoll's metrics")
	}
}

func TestCounterFileAddsLabelsToEveryMetric(t *testing.T) {
	f := setup(t)
	f.source.facts = device.Facts{Serial: "1652", VBIOS: "96.00"}
	unsupported := f.SetCounters([]Counter{{"DCGM_FI_DEV_VBIOS_VERSION", "label", ""}, {"DCGM_FI_DEV_GPU_UTIL", "gauge", "Busy."}, {"DCGM_FI_DEV_SERIAL", "label", ""},
		{"DCGM_FI_NVML_VERSION", "label", ""}, {"DCGM_FI_DEV_NAME", "label", ""}})
	if diff := cmp.Diff([]string{"DCGM_FI_DEV_NAME"}, unsupported); diff != "" {
		t.Error(diff)
	}
	_, text := f.collect(t)
	if want := `,Hostname="node-1",DCGM_FI_DEV_SERIAL="1652",DCGM_FI_DEV_VBIOS_VERSION="96.00"} 10` + "\n"; !strings.Contains(text, want) {
		t.Errorf("missing %s in\n%s", want, text)
	}
}

func TestParseCountersReportsLine(t *testing.T) {
	for file, want := range map[string]string{
		"# one\nDCGM_FI_DEV_GPU_UTIL, gauge\n":                      `line 2 must be NAME, TYPE, HELP`,
		"DCGM_FI_DEV_GPU_UTIL, gouge, Busy.\n":                      `line 1: the type of DCGM_FI_DEV_GPU_UTIL must be gauge, counter or label, not "gouge"`,
		"DCGM_FI_DEV_GPU_UTIL, gauge, \"never closed\nand so on, 1": "line 1",
	} {
		t.Run(want, func(t *testing.T) {
			if _, _, err := ParseCounters(file); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", file, err, want)
			}
		})
	}
}

// A field that occurs twice does not stop dcgm-exporter, so it does not stop this exporter.
func TestRepeatedFieldCountsOnce(t *testing.T) {
	counters, repeated, err := ParseCounters("DCGM_FI_DEV_GPU_UTIL, gauge, First.\nDCGM_FI_DEV_POWER_USAGE, gauge, Power.\nDCGM_FI_DEV_GPU_UTIL, counter, Second.\n")
	want := []Counter{{"DCGM_FI_DEV_GPU_UTIL", "gauge", "First."}, {"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power."}}
	if diff := cmp.Diff(want, counters); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{"DCGM_FI_DEV_GPU_UTIL"}, repeated); diff != "" {
		t.Error(diff)
	}
	if err := CheckCounters([]Counter{want[0], want[0]}); err == nil || !strings.Contains(err.Error(), "entry 2: duplicate field DCGM_FI_DEV_GPU_UTIL") {
		t.Errorf("outside of a counter file: %v", err)
	}
	if _, _, err := ParseCounters("A, gauge, x\nA, gouge, y\n"); err == nil {
		t.Error("an invalid line is accepted because its field is repeated")
	}
}

// Prometheus accepts the exposition whatever the bytes of the help texts are.
func TestHelpTextsAreValid(t *testing.T) {
	counters, _, err := ParseCounters("\uFEFFDCGM_FI_DEV_GPU_UTIL, gauge, a\xffb\x00c\x1b[d\re\u2028\nDCGM_FI_DEV_POWER_USAGE, gauge, \"two\nlines \\ \"\"quoted\"\"\"\n")
	if err != nil {
		t.Fatal(err)
	}
	f := setup(t)
	if unsupported := f.SetCounters(counters); len(unsupported) > 0 {
		t.Errorf("unsupported: %q", unsupported)
	}
	if err := f.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.requireParses(t)
	if _, text := f.scrape(t); !strings.Contains(text, "# HELP DCGM_FI_DEV_GPU_UTIL a\uFFFDb\uFFFDc\uFFFD[d") {
		t.Errorf("the help text is wrong:\n%.300s", text)
	}
}

// requireParses checks that Prometheus' parsers accept the exposition in both formats.
func (f *fixture) requireParses(t testing.TB) {
	t.Helper()
	for _, accept := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"} {
		response := f.get(accept, "")
		parser, err := textparse.New(response.Body.Bytes(), response.Header().Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
		for err == nil {
			_, err = parser.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v\n%.500q", accept, err, response.Body.String())
		}
	}
}

// FuzzCounterFile checks that a counter file is either refused or leads to an exposition
// that Prometheus accepts.
func FuzzCounterFile(f *testing.F) {
	f.Add("# Format\nDCGM_FI_DEV_GPU_UTIL, gauge, Busy, in %.\nDCGM_FI_DRIVER_VERSION, label, Driver\n")
	f.Add("\uFEFFDCGM_FI_DEV_XID_ERRORS, counter, \"a\nb\"\nDCGM_EXP_XID_ERRORS_COUNT, gauge, \xff\x00\r\n")
	f.Add("DCGM_FI_DEV_POWER_USAGE,gauge,\\\nX,gauge,\"\"\"\"\n")
	e := setup(f)
	f.Fuzz(func(t *testing.T, text string) {
		counters, _, err := ParseCounters(text)
		if err != nil {
			return
		}
		e.SetCounters(counters)
		if err := e.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.requireParses(t)
	})
}

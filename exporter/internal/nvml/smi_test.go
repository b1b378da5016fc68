package nvml

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// smiFields are the fields also shown by nvidia-smi. A value of nvidia-smi may differ by
// tolerance from the readings before and after the query.
var smiFields = []struct {
	name      string
	field     device.Field
	tolerance float64
}{
	{"utilization.gpu", device.GPUUtil, 20}, // averaged over less than a second
	{"utilization.memory", device.MemCopyUtil, 20},
	{"memory.used", device.FBUsed, 8},
	{"memory.total", device.FBTotal, 1},
	{"memory.reserved", device.FBReserved, 1},
	{"power.draw", device.PowerUsage, 30},
	{"enforced.power.limit", device.PowerLimit, 1},
	{"power.limit", device.PowerManagementLimit, 1},
	{"power.min_limit", device.PowerMin, 1},
	{"power.max_limit", device.PowerMax, 1},
	{"power.default_limit", device.PowerDefault, 1},
	{"clocks.sm", device.SMClock, 150},
	{"clocks.mem", device.MemClock, 10},
	{"temperature.gpu", device.GPUTemp, 2},
	{"temperature.memory", device.MemoryTemp, 2},
}

func smiArgs() []string {
	names := []string{"uuid"}
	for _, f := range smiFields {
		names = append(names, f.name)
	}
	return []string{"--query-gpu=" + strings.Join(names, ","), "--format=csv,noheader,nounits"}
}

// compareWithSMI compares the output of nvidia-smi with the readings before and after it, by
// UUID, and returns the differences.
func compareWithSMI(before, after map[string]device.Reading, output string) ([]string, error) {
	reader := csv.NewReader(strings.NewReader(output))
	reader.TrimLeadingSpace = true
	rows, err := reader.ReadAll()
	if err != nil {
		return nil, err
	}
	var differences []string
	if len(rows) != len(before) {
		differences = append(differences, fmt.Sprintf("nvidia-smi lists %d devices, the source %d", len(rows), len(before)))
	}
	for _, row := range rows {
		for i, f := range smiFields {
			first, last := before[row[0]], after[row[0]]
			a, present := first.Get(f.field)
			b, _ := last.Get(f.field)
			v, err := strconv.ParseFloat(row[i+1], 64)
			if inSMI := err == nil; inSMI != present || present && (v < math.Min(a, b)-f.tolerance || v > math.Max(a, b)+f.tolerance) {
				differences = append(differences, fmt.Sprintf("%s %s: nvidia-smi shows %s, the source read %g and %g (present %t)", row[0], f.name, row[i+1], a, b, present))
			}
		}
	}
	return differences, nil
}

// readAndCompare reads all devices before and after running nvidia-smi and returns the
// differences.
func readAndCompare(t *testing.T, s *Source, smi func(args ...string) (string, error)) []string {
	t.Helper()
	readings := func() map[string]device.Reading {
		out := map[string]device.Reading{}
		for _, d := range listDevices(t, s) {
			out[d.UUID] = readDevice(t, s, d)
		}
		return out
	}
	before := readings()
	output, err := smi(smiArgs()...)
	if err != nil {
		t.Fatalf("nvidia-smi: %v", err)
	}
	differences, err := compareWithSMI(before, readings(), output)
	if err != nil {
		t.Fatalf("output of nvidia-smi %q: %v", output, err)
	}
	return differences
}

// recordExposition writes the metrics of two collections to a file in folder. The recording
// allows work on the metrics without such a device.
func recordExposition(t *testing.T, s *Source, folder string) (path string) {
	t.Helper()
	d := listDevices(t, s)[0]
	e := newCollector(t, s, time.Second)
	for range 2 {
		time.Sleep(gpmMinInterval) // otherwise GPM metrics are absent
		if err := e.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(folder, collector.Model(d.Model)+"-"+d.Driver+".prom")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := e.WriteText(file); err != nil {
		t.Fatal(err)
	}
	return path
}

// smi returns a fake nvidia-smi with the values of the fake driver. Values in overrides
// replace them, by field name.
func (f *fake) smi(overrides map[string]string) func(...string) (string, error) {
	return func(...string) (string, error) {
		var out strings.Builder
		for i := range 8 {
			out.WriteString(f.uuid(i))
			for _, field := range smiFields {
				value, ok := overrides[field.name]
				if !ok {
					value = f.smiValue(i, field.field)
				}
				out.WriteString(", " + value)
			}
			out.WriteString("\n")
		}
		return out.String(), nil
	}
}

func (f *fake) smiValue(i int, field device.Field) string {
	word := map[device.Field]int{device.GPUUtil: devUtil, device.MemCopyUtil: devMemUtil, device.FBUsed: devUsed, device.FBTotal: devTotal,
		device.FBReserved: devReserved, device.PowerUsage: devPower, device.PowerLimit: devPowerLimit, device.PowerManagementLimit: devPowerSet,
		device.SMClock: devSMClock, device.MemClock: devMemClock, device.GPUTemp: devTemperature, device.MemoryTemp: devMemTemp}
	v := float64(f.deviceWord(i, word[field]))
	switch field {
	case device.FBUsed, device.FBTotal, device.FBReserved:
		v /= 1 << 20
	case device.PowerUsage, device.PowerLimit, device.PowerManagementLimit:
		v /= 1000
	case device.PowerMin, device.PowerMax, device.PowerDefault:
		v = map[device.Field]float64{device.PowerMin: 200, device.PowerMax: 700, device.PowerDefault: 600}[field]
	default: // the control word already has the unit of nvidia-smi
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func runSMI(args ...string) (string, error) {
	out, err := exec.Command("nvidia-smi", args...).Output()
	return string(out), err
}

// With PLIMSOLL_NVML=real the test uses the driver and nvidia-smi of the machine. With
// PLIMSOLL_NVML_RECORD=true it also records the metrics in testdata/recorded.
func TestDriverAgreesWithNvidiaSMI(t *testing.T) {
	if useRealDriver() {
		compareRealDriver(t)
		return
	}
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	if out := readAndCompare(t, s, f.smi(nil)); len(out) > 0 {
		t.Errorf("equal values differ: %q", out)
	}
	for name, value := range map[string]string{"temperature.gpu": "39.99", "memory.total": "80000", "utilization.gpu": "[N/A]", "power.draw": "400.5"} {
		t.Run(name, func(t *testing.T) {
			if out := readAndCompare(t, s, f.smi(map[string]string{name: value})); len(out) == 0 || !strings.Contains(out[len(out)-1], name) {
				t.Errorf("%s of %s is not reported: %q", name, value, out)
			}
		})
	}
	text, err := os.ReadFile(recordExposition(t, s, t.TempDir()))
	if err != nil || !strings.Contains(string(text), "\nDCGM_FI_PROF_PIPE_TENSOR_ACTIVE{") {
		t.Errorf("the recording lacks the tensor core metric: %v\n%s", err, text)
	}
}

func compareRealDriver(t *testing.T) {
	t.Helper()
	s := openRealDriver(t)
	if _, err := exec.LookPath("nvidia-smi"); err != nil {
		t.Log("not compared: ", err)
	} else {
		for _, difference := range readAndCompare(t, s, runSMI) {
			t.Error(difference)
		}
	}
	if os.Getenv("PLIMSOLL_NVML_RECORD") == "true" {
		t.Log("recorded ", recordExposition(t, s, "testdata/recorded"))
	}
}

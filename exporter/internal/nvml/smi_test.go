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

// queried are what nvidia-smi tells as well, and how far it may be from what was
// read just before and just after.
var queried = []struct {
	name  string
	field device.Field
	off   float64
}{
	{"utilization.gpu", device.GPUUtil, 20}, // of a shorter time than a second
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

func query() []string {
	names := []string{"uuid"}
	for _, q := range queried {
		names = append(names, q.name)
	}
	return []string{"--query-gpu=" + strings.Join(names, ","), "--format=csv,noheader,nounits"}
}

// disagreements between readings before and after a query, by UUID, and its answer.
func disagreements(before, after map[string]device.Reading, answer string) ([]string, error) {
	reader := csv.NewReader(strings.NewReader(answer))
	reader.TrimLeadingSpace = true
	rows, err := reader.ReadAll()
	if err != nil {
		return nil, err
	}
	var out []string
	if len(rows) != len(before) {
		out = append(out, fmt.Sprintf("nvidia-smi lists %d devices, we %d", len(rows), len(before)))
	}
	for _, row := range rows {
		for i, q := range queried {
			first, last := before[row[0]], after[row[0]]
			a, told := first.Get(q.field)
			b, _ := last.Get(q.field)
			v, err := strconv.ParseFloat(row[i+1], 64)
			if tells := err == nil; tells != told || told && (v < math.Min(a, b)-q.off || v > math.Max(a, b)+q.off) {
				out = append(out, fmt.Sprintf("%s %s: nvidia-smi says %s, we read %g and %g (%t)", row[0], q.name, row[i+1], a, b, told))
			}
		}
	}
	return out, nil
}

// agree compares what the library tells with nvidia-smi in the same second.
func agree(t *testing.T, s *Source, smi func(args ...string) (string, error)) []string {
	t.Helper()
	readings := func() map[string]device.Reading {
		out := map[string]device.Reading{}
		for _, d := range list(t, s) {
			out[d.UUID] = read(t, s, d)
		}
		return out
	}
	before := readings()
	answer, err := smi(query()...)
	if err != nil {
		t.Fatalf("nvidia-smi: %v", err)
	}
	out, err := disagreements(before, readings(), answer)
	if err != nil {
		t.Fatalf("nvidia-smi answers %q: %v", answer, err)
	}
	return out
}

// record what two collections expose, for someone without such a device to read.
func record(t *testing.T, s *Source, folder string) (path string) {
	t.Helper()
	d := list(t, s)[0]
	e := over(t, s, time.Second)
	for range 2 {
		time.Sleep(gpmApart) // or the device's monitors tell nothing
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

// smiOf the fake: what its devices tell, in nvidia-smi's words.
func (f *fake) smiOf(change map[string]string) func(...string) (string, error) {
	return func(...string) (string, error) {
		var out strings.Builder
		for i := range 8 {
			out.WriteString(f.uuid(i))
			for _, q := range queried {
				answer, ok := change[q.name]
				if !ok {
					answer = f.tells(i, q.field)
				}
				out.WriteString(", " + answer)
			}
			out.WriteString("\n")
		}
		return out.String(), nil
	}
}

func (f *fake) tells(i int, field device.Field) string {
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
	default: // the fake has it in nvidia-smi's unit
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func realSMI(args ...string) (string, error) {
	out, err := exec.Command("nvidia-smi", args...).Output()
	return string(out), err
}

// With PLIMSOLL_NVML=real this asks the machine's own library and nvidia-smi, and
// with PLIMSOLL_NVML_RECORD=true records what it exposes in testdata/recorded.
func TestTheLibraryAgreesWithNVIDIASMI(t *testing.T) {
	if isReal() {
		s := openReal(t)
		if _, err := exec.LookPath("nvidia-smi"); err != nil {
			t.Log("not compared: ", err)
		} else {
			for _, difference := range agree(t, s, realSMI) {
				t.Error(difference)
			}
		}
		if os.Getenv("PLIMSOLL_NVML_RECORD") == "true" {
			t.Log("recorded ", record(t, s, "testdata/recorded"))
		}
		return
	}
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	if out := agree(t, s, f.smiOf(nil)); len(out) > 0 {
		t.Errorf("the same numbers disagree: %q", out)
	}
	for name, answer := range map[string]string{"temperature.gpu": "39.99", "memory.total": "80000", "utilization.gpu": "[N/A]", "power.draw": "400.5"} {
		if out := agree(t, s, f.smiOf(map[string]string{name: answer})); len(out) == 0 || !strings.Contains(out[len(out)-1], name) {
			t.Errorf("%s of %s passes: %q", name, answer, out)
		}
	}
	text, err := os.ReadFile(record(t, s, t.TempDir()))
	if err != nil || !strings.Contains(string(text), "\nDCGM_FI_PROF_PIPE_TENSOR_ACTIVE{") {
		t.Errorf("what is recorded lacks the tensor cores: %v\n%s", err, text)
	}
}

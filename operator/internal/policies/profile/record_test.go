package profile

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

var key = Key{Name: "llama", Source: v1alpha1.ProfileFromLabel, Label: "llama"}

func runOf(uid string, end time.Time, model string, m Measurement) Run {
	return Run{UID: uid, End: end, Models: map[string]Measurement{model: m}}
}

func TestAddSummarizesRuns(t *testing.T) {
	status := &v1alpha1.JobProfileStatus{}
	for i := range 10 {
		Add(status, key, runOf(fmt.Sprint(i), noon.Add(time.Duration(i)*time.Minute), "h100", Measurement{
			v1alpha1.QuantityDuration: float64(100 * (i + 1)), v1alpha1.QuantityMemoryPeak: 40 * 1024 * mebibyte,
			v1alpha1.QuantityUtilization: 0.9, v1alpha1.QuantityTensorActive: 0.5, v1alpha1.QuantityNVLink: math.NaN(),
		}), month)
	}
	m := status.Models[0]
	for _, tc := range []struct {
		name  string
		got   *int64
		exact float64
		ratio float64
	}{
		{"duration p50", m.DurationP50Seconds, 500, 1.1},
		{"duration p90", m.DurationP90Seconds, 900, 1.1},
		{"memory peak", m.MemoryPeakP90Bytes, 40 * 1024 * mebibyte, 1.05},
		{"utilization", m.UtilizationP50Percent, 90, 1.1},
		{"tensor", m.TensorActiveP50Percent, 50, 1.1},
	} {
		if tc.got == nil || float64(*tc.got) < tc.exact || float64(*tc.got) > tc.exact*tc.ratio+1 {
			t.Errorf("%s: %v, want %g to %g", tc.name, tc.got, tc.exact, tc.exact*tc.ratio)
		}
	}
	if m.NVLinkP50BytesPerSecond != nil || m.PCIeP50BytesPerSecond != nil || m.EnergyP50Joules != nil {
		t.Errorf("quantities that were not measured: %+v", m)
	}
	if m.Runs != 10 || status.Runs != 10 || m.Class != v1alpha1.ClassTraining || m.Bottleneck != v1alpha1.BottleneckCompute || status.Label != "llama" {
		t.Errorf("status %+v", status)
	}
	if want := noon.Add(9 * time.Minute); !status.LastRunTime.Time.Equal(want) || !m.LastRunTime.Time.Equal(want) {
		t.Errorf("last run %s, %s", status.LastRunTime, m.LastRunTime)
	}
}

func TestRunsCountOnce(t *testing.T) {
	status := &v1alpha1.JobProfileStatus{}
	if IsCounted(status, "0", noon) {
		t.Error("a run is counted in an empty status")
	}
	for i := range maxRecentRuns + 1 {
		Add(status, key, runOf(fmt.Sprint(i), noon.Add(time.Duration(i)*time.Second), "h100", Measurement{v1alpha1.QuantityDuration: 1}), month)
	}
	if len(status.RecentRuns) != maxRecentRuns {
		t.Fatalf("%d runs", len(status.RecentRuns))
	}
	for _, tc := range []struct {
		name, uid string
		end       time.Time
		want      bool
	}{
		{"the latest", fmt.Sprint(maxRecentRuns), noon.Add(maxRecentRuns * time.Second), true},
		{"the one that is no longer in the list", "0", noon, true},
		{"another one as old as the oldest in the list", "x", noon.Add(time.Second), true},
		{"a new one", "x", noon.Add(2 * time.Second), false},
	} {
		if got := IsCounted(status, tc.uid, tc.end); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

func TestAddBoundsModels(t *testing.T) {
	status := &v1alpha1.JobProfileStatus{}
	for i := range 20 {
		Add(status, key, runOf(fmt.Sprint(i), noon.Add(time.Duration(i)*time.Minute), fmt.Sprintf("m%02d", i), Measurement{v1alpha1.QuantityDuration: 1}), month)
	}
	Add(status, key, runOf("long", noon, strings.Repeat("x", 254), Measurement{v1alpha1.QuantityDuration: 1}), month)
	var models []string
	for _, m := range status.Models {
		models = append(models, m.Model)
	}
	if diff := cmp.Diff([]string{"m12", "m13", "m14", "m15", "m16", "m17", "m18", "m19"}, models); diff != "" {
		t.Error(diff)
	}
}

// A run that was recorded late does not move the time of the latest run back.
func TestLateRunKeepsTheLatestTime(t *testing.T) {
	status := &v1alpha1.JobProfileStatus{}
	Add(status, key, runOf("b", noon, "h100", Measurement{v1alpha1.QuantityDuration: 1}), month)
	Add(status, key, runOf("a", noon.Add(-time.Hour), "h100", Measurement{v1alpha1.QuantityDuration: 1}), month)
	if !status.LastRunTime.Time.Equal(noon) || !status.Models[0].LastRunTime.Time.Equal(noon) || status.RecentRuns[0].UID != "a" {
		t.Errorf("status %+v", status)
	}
}

func TestErrors(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	status := &v1alpha1.JobProfileStatus{Models: []v1alpha1.ModelProfile{
		{Model: "a", LastRunTime: metav1.NewTime(noon), DurationP50Seconds: seconds(150), MemoryPeakP90Bytes: seconds(90), UtilizationP50Percent: seconds(40)},
		{Model: "b"},
	}}
	got := Errors(status, Run{Models: map[string]Measurement{
		"a": {v1alpha1.QuantityDuration: 100, v1alpha1.QuantityMemoryPeak: 100, v1alpha1.QuantityUtilization: 0.8},
		"b": {v1alpha1.QuantityDuration: 100},
		"c": {v1alpha1.QuantityDuration: 100},
	}})
	want := map[v1alpha1.ProfileQuantity][]float64{v1alpha1.QuantityDuration: {0.5}, v1alpha1.QuantityMemoryPeak: {0.1}, v1alpha1.QuantityUtilization: {0.5}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, v := range []float64{0, math.NaN(), math.Inf(1), -1} {
		got := Errors(status, Run{Models: map[string]Measurement{"a": {v1alpha1.QuantityDuration: v}}})
		if len(got) != 0 {
			t.Errorf("error for the measured value %g: %v", v, got)
		}
	}
}

// The unit of a throughput is that of the user's query. A throughput of 0, or one that is too small or too
// large for the scale, must not make all models equally fast.
func TestThroughputsAreDistinct(t *testing.T) {
	throughputOf := func(values ...float64) []string {
		var status v1alpha1.JobProfileStatus
		var got []string
		for i, v := range values {
			model := fmt.Sprint("m", i)
			Add(&status, key, NewTrial(model, noon, map[v1alpha1.ProfileQuantity]map[string]float64{v1alpha1.QuantityThroughput: {model: v}}), month)
			if status.Models[i].Trials != 1 {
				t.Errorf("%g: %d trials", v, status.Models[i].Trials)
			}
			got = append(got, status.Models[i].ThroughputP50)
		}
		return got
	}
	if got := throughputOf(0, 0, 9e-10, 1.1e18); strings.Join(got, "") != "" {
		t.Errorf("throughputs outside the scale: %q", got)
	}
	for _, pair := range [][2]float64{{1e-9, 1.2e-9}, {2e-4, 8e-4}, {4e14, 9e14}, {8e17, 1e18}} {
		got := throughputOf(pair[0], pair[1])
		for i, text := range got {
			if n, err := strconv.ParseFloat(text, 64); err != nil || n < pair[i]*0.999 || n > pair[i]*1.151 {
				t.Errorf("throughput %g is %q", pair[i], text)
			}
		}
		if got[0] == got[1] {
			t.Errorf("throughputs %v are both %s", pair, got[0])
		}
	}
}

// A trial run says what a device needs, and nothing about the duration of the job.
func TestTrialsCountApart(t *testing.T) {
	var status v1alpha1.JobProfileStatus
	results := map[v1alpha1.ProfileQuantity]map[string]float64{
		v1alpha1.QuantityMemoryPeak: {"h100": 40e9}, v1alpha1.QuantityTensorActive: {"h100": 0.5}, v1alpha1.QuantityThroughput: {"h100": 12.5}}
	Add(&status, Key{Name: "llama"}, NewTrial("copy", noon, results), time.Hour)
	m := status.Models[0]
	if status.Runs != 0 || m.Runs != 0 || m.Trials != 1 || m.DurationP50Seconds != nil || m.EnergyP50Joules != nil {
		t.Errorf("%d runs, model %+v", status.Runs, m)
	}
	if m.MemoryPeakP90Bytes == nil || *m.MemoryPeakP90Bytes < 40e9 || m.ThroughputP50 == "" {
		t.Errorf("model %+v", m)
	}
	if !IsCounted(&status, "copy", noon) {
		t.Error("the copy would be measured again")
	}
	for _, q := range TrialQueries(time.Minute, "steps", "h100") {
		if q.Quantity == v1alpha1.QuantityEnergy {
			t.Error("the energy of a copy is measured")
		}
	}
}

package profile

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Limits of a JobProfile, which its schema has, too.
const (
	maxModels     = 8
	maxRecentRuns = 64
	maxModelName  = 253
)

// Measurement is what was measured of a run on one device model.
type Measurement map[v1alpha1.ProfileQuantity]float64

// Run is one successful run of a workload, or one trial run.
type Run struct {
	// UID of the Workload.
	UID string
	// End of the run.
	End time.Time
	// Trial is true for the copy of a job with one pod, which says nothing about durations.
	Trial bool
	// Models are the measurements by device model.
	Models map[string]Measurement
}

// IsCounted reports whether a run is part of the status. It also returns true for a run of
// which that is no longer known, because newer ones took its place in the list.
func IsCounted(status *v1alpha1.JobProfileStatus, uid string, end time.Time) bool {
	runs := status.RecentRuns
	if slices.ContainsFunc(runs, func(r v1alpha1.ProfiledRun) bool { return r.UID == uid }) {
		return true
	}
	return len(runs) >= maxRecentRuns && !end.After(runs[0].EndTime.Time)
}

// Add adds a run to the status. Models beyond the limit, or with names that are too long,
// are left out. Values outside their scale are left out, too.
func Add(status *v1alpha1.JobProfileStatus, key Key, run Run, halfLife time.Duration) {
	end := metav1.NewTime(run.End.UTC().Truncate(time.Second))
	status.KeySource, status.Label = key.Source, key.Label
	if !run.Trial {
		status.Runs++
	}
	if status.LastRunTime == nil || status.LastRunTime.Time.Before(end.Time) {
		status.LastRunTime = &end
	}
	status.RecentRuns = append(status.RecentRuns, v1alpha1.ProfiledRun{UID: run.UID, EndTime: end})
	slices.SortStableFunc(status.RecentRuns, func(a, b v1alpha1.ProfiledRun) int { return a.EndTime.Compare(b.EndTime.Time) })
	status.RecentRuns = status.RecentRuns[max(0, len(status.RecentRuns)-maxRecentRuns):]
	for _, model := range slices.Sorted(maps.Keys(run.Models)) {
		if len(model) <= maxModelName {
			m := modelOf(status, model)
			if run.Trial {
				m.Trials++
			} else {
				m.Runs++
			}
			addToModel(m, run.Models[model], end.Time, halfLife)
		}
	}
	limitModels(status)
}

// modelOf returns the profile of a model, which it adds if necessary.
func modelOf(status *v1alpha1.JobProfileStatus, model string) *v1alpha1.ModelProfile {
	i := slices.IndexFunc(status.Models, func(m v1alpha1.ModelProfile) bool { return m.Model == model })
	if i < 0 {
		i = len(status.Models)
		status.Models = append(status.Models, v1alpha1.ModelProfile{Model: model})
	}
	return &status.Models[i]
}

// limitModels drops the models whose last runs are the oldest, and sorts the others by name.
func limitModels(status *v1alpha1.JobProfileStatus) {
	slices.SortStableFunc(status.Models, func(a, b v1alpha1.ModelProfile) int {
		return cmp.Or(b.LastRunTime.Compare(a.LastRunTime.Time), cmp.Compare(a.Model, b.Model))
	})
	status.Models = status.Models[:min(len(status.Models), maxModels)]
	slices.SortFunc(status.Models, func(a, b v1alpha1.ModelProfile) int { return cmp.Compare(a.Model, b.Model) })
}

func addToModel(m *v1alpha1.ModelProfile, measured Measurement, end time.Time, halfLife time.Duration) {
	if m.LastRunTime.Time.Before(end) {
		m.LastRunTime = metav1.NewTime(end)
	}
	for _, quantity := range slices.Sorted(maps.Keys(measured)) {
		i := slices.IndexFunc(m.Histograms, func(h v1alpha1.ProfileHistogram) bool { return h.Quantity == quantity })
		if i >= 0 {
			add(&m.Histograms[i], measured[quantity], end, halfLife)
			continue
		}
		if h := (v1alpha1.ProfileHistogram{Quantity: quantity}); add(&h, measured[quantity], end, halfLife) {
			m.Histograms = append(m.Histograms, h)
		}
	}
	summarize(m)
}

// summarize computes the percentiles and the characterization from the histograms.
func summarize(m *v1alpha1.ModelProfile) {
	medians := averages{}
	for i := range m.Histograms {
		if median, ok := percentile(&m.Histograms[i], 0.5); ok {
			medians[m.Histograms[i].Quantity] = median
		}
	}
	m.DurationP50Seconds = medians.integer(v1alpha1.QuantityDuration, 1)
	m.DurationP90Seconds = p90(m, v1alpha1.QuantityDuration)
	m.MemoryPeakP90Bytes = p90(m, v1alpha1.QuantityMemoryPeak)
	m.UtilizationP50Percent = medians.integer(v1alpha1.QuantityUtilization, 100)
	m.TensorActiveP50Percent = medians.integer(v1alpha1.QuantityTensorActive, 100)
	m.DRAMActiveP50Percent = medians.integer(v1alpha1.QuantityDRAMActive, 100)
	m.NVLinkP50BytesPerSecond = medians.integer(v1alpha1.QuantityNVLink, 1)
	m.PCIeP50BytesPerSecond = medians.integer(v1alpha1.QuantityPCIe, 1)
	m.EnergyP50Joules = medians.integer(v1alpha1.QuantityEnergy, 1)
	m.ThroughputP50 = ""
	if medians.has(v1alpha1.QuantityThroughput) {
		m.ThroughputP50 = strconv.FormatFloat(medians[v1alpha1.QuantityThroughput], 'g', 4, 64)
	}
	m.Class, m.Bottleneck = classOf(medians), bottleneckOf(medians)
}

// integer returns a median times a factor, rounded. It is nil if it is not known.
func (a averages) integer(q v1alpha1.ProfileQuantity, factor float64) *int64 {
	if !a.has(q) {
		return nil
	}
	return new(int64(math.Round(a[q] * factor)))
}

func p90(m *v1alpha1.ModelProfile, q v1alpha1.ProfileQuantity) *int64 {
	for i := range m.Histograms {
		if m.Histograms[i].Quantity != q {
			continue
		}
		if value, ok := percentile(&m.Histograms[i], 0.9); ok {
			return new(int64(math.Round(value)))
		}
	}
	return nil
}

// Errors returns the relative errors of the profile's predictions for a run that is not
// added yet: |predicted - measured| / measured. The predictions are the median of the
// duration and of the utilization, and the 90th percentile of the peak memory. A quantity
// that was not predicted or not measured, or whose measured value is 0, has no error.
func Errors(status *v1alpha1.JobProfileStatus, run Run) map[v1alpha1.ProfileQuantity][]float64 {
	ratios := map[v1alpha1.ProfileQuantity][]float64{}
	for i := range status.Models {
		m := &status.Models[i]
		measured := run.Models[m.Model]
		for quantity, predicted := range map[v1alpha1.ProfileQuantity]*int64{
			v1alpha1.QuantityDuration: m.DurationP50Seconds, v1alpha1.QuantityMemoryPeak: m.MemoryPeakP90Bytes, v1alpha1.QuantityUtilization: m.UtilizationP50Percent,
		} {
			value := measured[quantity]
			if !IsOnScale(quantity, value) || value == 0 || predicted == nil {
				continue
			}
			if quantity == v1alpha1.QuantityUtilization {
				value *= 100
			}
			ratios[quantity] = append(ratios[quantity], math.Abs(float64(*predicted)-value)/value)
		}
	}
	return ratios
}

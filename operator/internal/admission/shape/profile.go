package shape

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Profile holds what earlier runs of similar jobs used. A value is 0 if no run measured it.
type Profile struct {
	// MemoryPeak is the 90th percentile of the largest used memory of a device, in bytes.
	MemoryPeak int64 `json:"memoryPeak,omitempty"`
	// Duration is the median of the time from admission to the end, in seconds.
	Duration int64 `json:"duration,omitempty"`
	// UtilizationPercent is the median of the mean utilization of the devices, 0 to 100.
	UtilizationPercent int64 `json:"utilizationPercent,omitempty"`
	// BestModel is the device model on which the job is fastest, if the pods request no model and
	// runs or trials on several models can be compared.
	BestModel string `json:"bestModel,omitempty"`
}

// ProfileVariables are the names of the variables that have the values of a Profile, without the
// leading $. A workload without a profile has no values for them, so that only queries that can
// do without may use them.
var ProfileVariables = []string{varProfileMemoryPeak, varProfileDuration, varProfileUtilization, varProfileBestModel}

const (
	varProfileMemoryPeak  = "profile_memory_peak"
	varProfileDuration    = "profile_duration"
	varProfileUtilization = "profile_utilization"
	varProfileBestModel   = "profile_best_model"
)

// UsesProfiles reports whether a query of the gate reads the profile of a workload.
func UsesProfiles(spec *v1alpha1.PlacementGateSpec) bool {
	uses := func(query string) bool { return strings.Contains(query, "$profile_") }
	return slices.ContainsFunc([]string{spec.Queries.Headroom, spec.Queries.Capacity, spec.Queries.Preference}, uses) ||
		slices.ContainsFunc(spec.Requirements, func(c v1alpha1.GateRequirement) bool { return uses(c.Query) })
}

// profileOf returns the profile on a device model. For any model, the largest values of all models
// count. It returns nil if nothing is known.
func profileOf(status *v1alpha1.JobProfileStatus, model string) *Profile {
	if status == nil {
		return nil
	}
	var p Profile
	for i := range status.Models {
		m := &status.Models[i]
		if model != "" && NormalizeModel(m.Model) != model {
			continue
		}
		if m.MemoryPeakP90Bytes != nil {
			p.MemoryPeak = max(p.MemoryPeak, *m.MemoryPeakP90Bytes)
		}
		if m.DurationP50Seconds != nil {
			p.Duration = max(p.Duration, *m.DurationP50Seconds)
		}
		if m.UtilizationP50Percent != nil {
			p.UtilizationPercent = max(p.UtilizationPercent, *m.UtilizationP50Percent)
		}
	}
	if model == "" {
		p.BestModel = bestModel(status.Models)
	}
	if p == (Profile{}) {
		return nil
	}
	return &p
}

// bestModel returns the model with the highest throughput or, if not all models have one, with the
// shortest duration. It returns "" if fewer than two models can be compared, or if one has only the
// other measurement: it may be the fastest, and would never be chosen.
func bestModel(models []v1alpha1.ModelProfile) string {
	var measured []*v1alpha1.ModelProfile
	for i := range models {
		if throughputOf(&models[i]) > 0 || speedOf(&models[i]) > 0 {
			measured = append(measured, &models[i])
		}
	}
	if len(measured) < 2 {
		return ""
	}
	for _, speed := range []func(*v1alpha1.ModelProfile) float64{throughputOf, speedOf} {
		if slices.ContainsFunc(measured, func(m *v1alpha1.ModelProfile) bool { return speed(m) <= 0 }) {
			continue
		}
		best := slices.MaxFunc(measured, func(a, b *v1alpha1.ModelProfile) int { return cmp.Compare(speed(a), speed(b)) })
		return NormalizeModel(best.Model)
	}
	return ""
}

// throughputOf returns the throughput of a model's trials; 0 = not measured.
func throughputOf(m *v1alpha1.ModelProfile) float64 {
	throughput, err := strconv.ParseFloat(m.ThroughputP50, 64)
	if err != nil || math.IsInf(throughput, 0) || math.IsNaN(throughput) {
		return 0
	}
	return throughput
}

// speedOf returns the inverse of the duration of a model's runs; 0 = not measured.
func speedOf(m *v1alpha1.ModelProfile) float64 {
	if m.DurationP50Seconds == nil || *m.DurationP50Seconds <= 0 {
		return 0
	}
	return 1 / float64(*m.DurationP50Seconds)
}

// addVars adds the known values.
func (p *Profile) addVars(vars map[string]string) {
	if p.BestModel != "" {
		vars[varProfileBestModel] = p.BestModel
	}
	if p.UtilizationPercent > 0 {
		vars[varProfileUtilization] = strconv.FormatFloat(float64(p.UtilizationPercent)/100, 'g', -1, 64)
	}
	for name, value := range map[string]int64{varProfileMemoryPeak: p.MemoryPeak, varProfileDuration: p.Duration} {
		if value > 0 {
			vars[name] = strconv.FormatInt(value, 10)
		}
	}
}

func (p *Profile) equal(other *Profile) bool {
	if p == nil || other == nil {
		return p == other
	}
	return *p == *other
}

func (p *Profile) appendKey(key []byte) []byte {
	if p == nil {
		return key
	}
	key = append(key, 'p')
	for _, n := range []int64{p.MemoryPeak, p.Duration, p.UtilizationPercent} {
		key = append(strconv.AppendInt(key, n, 10), ':')
	}
	return append(key, p.BestModel...)
}

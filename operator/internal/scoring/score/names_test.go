package score

import (
	"slices"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestNameOf(t *testing.T) {
	for _, tc := range []struct {
		value, want string
		ok          bool
	}{
		{"NVIDIA-H100-80GB-HBM3", "fit-NVIDIA-H100-80GB-HBM3", true},
		{"NVIDIA A100-SXM4-80GB", "fit-NVIDIA-A100-SXM4-80GB", true},
		{"nvidia.com/mig-1g.10gb", "fit-nvidia-com-mig-1g-10gb", true},
		{"--a__b--", "fit-a-b", true},
		{"aA0zZ9", "fit-aA0zZ9", true},
		{"Grafikkarte ä", "fit-Grafikkarte", true},
		{"", "fit", false},
		{"//", "fit", false},
		{strings.Repeat("x", 59), "fit-" + strings.Repeat("x", 59), true},
		{strings.Repeat("x", 60), "fit-" + strings.Repeat("x", 60), false},
	} {
		if got, ok := NameOf("fit", tc.value); got != tc.want || ok != tc.ok {
			t.Errorf("%q: got %s %v", tc.value, got, ok)
		}
	}
}

// TestRestartKeepsTheNames: a restarted operator continues the scores that it published.
func TestRestartKeepsTheNames(t *testing.T) {
	spec := &v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{linear("fit", "0", "10"), linear("power", "0", "10")}, Total: &v1alpha1.TotalSpec{Expression: "scores.power"}}
	spec.Scores[0].NameFrom = &v1alpha1.NameFrom{Label: "model"}
	seeds := []Seed{
		{Cluster: "c1", Scores: map[string]SeedScore{"fit-a100": {Value: 30, SampleTime: t0}, "power": {Value: 50, SampleTime: t0}}},
		{Cluster: "c2", Scores: map[string]SeedScore{"fit-h100": {Value: 70, SampleTime: t0}, "fit-a100": {State: Omitted}, "other": {Value: 1}}},
	}
	r := FromSeeds(mustCompile(t, spec), seeds, t0)
	if want := []string{"fit-a100", "fit-h100", "power", "total"}; !slices.Equal(r.Names, want) {
		t.Fatalf("names %v", r.Names)
	}
	if !r.IsInUse("fit-h100") || r.IsInUse("total") || r.IsInUse("fit-l4") || r.Row(1)[1].Value != 70 {
		t.Errorf("cells %+v", r.Cells)
	}
}

package shape

import "testing"

func TestEquivalenceKey(t *testing.T) {
	base := func() Facts {
		f := job("a", 8, 2)
		f.PodSets[0].NodeSelector = map[string]string{"zone": "a", "tier": "b"}
		return f
	}
	other := base()
	other.UID, other.Name = "b", "another"
	if got, want := other.EquivalenceKey(), base().EquivalenceKey(); got != want {
		t.Errorf("another workload of the same shape: got %s, want %s", got, want)
	}
	seen := map[string]string{base().EquivalenceKey(): "unchanged"}
	for _, tc := range []struct {
		name   string
		change func(*Facts)
	}{
		{"namespace", func(f *Facts) { f.Namespace = "x" }},
		{"queue", func(f *Facts) { f.Queue = "x" }},
		{"cluster queue", func(f *Facts) { f.ClusterQueue = "x" }},
		{"remote", func(f *Facts) { f.Remote = true }},
		{"reclaims", func(f *Facts) { f.Reclaims = true }},
		{"flavor", func(f *Facts) { f.PodSets[0].Flavor = "x" }},
		{"resource", func(f *Facts) { f.PodSets[0].Resource = "x" }},
		{"model", func(f *Facts) { f.PodSets[0].Model = "x" }},
		{"devices per pod", func(f *Facts) { f.PodSets[0].DevicesPerPod = 4 }},
		{"required topology", func(f *Facts) { f.PodSets[0].RequiredTopology = "rack" }},
		{"share", func(f *Facts) { f.PodSets[0].Share = &Share{Memory: 1, CorePercent: 2} }},
		{"share of other memory", func(f *Facts) { f.PodSets[0].Share = &Share{Memory: 2, CorePercent: 2} }},
		{"share of a percentage", func(f *Facts) { f.PodSets[0].Share = &Share{MemoryPercent: 1, CorePercent: 2} }},
		{"share of other cores", func(f *Facts) { f.PodSets[0].Share = &Share{Memory: 1, CorePercent: 3} }},
		{"profile", func(f *Facts) { f.PodSets[0].Profile = &Profile{MemoryPeak: 1, Duration: 2} }},
		{"profile with another memory", func(f *Facts) { f.PodSets[0].Profile = &Profile{MemoryPeak: 2, Duration: 2} }},
		{"profile with another duration", func(f *Facts) { f.PodSets[0].Profile = &Profile{MemoryPeak: 1, Duration: 3} }},
		{"profile without a duration", func(f *Facts) { f.PodSets[0].Profile = &Profile{MemoryPeak: 12} }},
		{"pods", func(f *Facts) { f.PodSets[0].Pods = 4 }},
		{"no pod set", func(f *Facts) { f.PodSets = nil }},
		{"two pod sets", func(f *Facts) { f.PodSets = append(f.PodSets, f.PodSets[0]) }},
		{"flavor labels", func(f *Facts) { f.PodSets[0].FlavorLabels = map[string]string{"zone": "a"} }},
		{"node selector", func(f *Facts) { f.PodSets[0].NodeSelector["zone"] = "b" }},
		{"value with quotes", func(f *Facts) { f.PodSets[0].NodeSelector = map[string]string{"tier": "b\"\"zone\"\"a"} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := base()
			tc.change(&f)
			key := f.EquivalenceKey()
			if same, exists := seen[key]; exists {
				t.Errorf("same key as %q: %s", same, key)
			}
			seen[key] = tc.name
		})
	}
}

package shape

import "testing"

func TestShapeKeyTellsWhatQueriesSee(t *testing.T) {
	facts := func(change func(*Facts)) Facts {
		f := job("a", 8, 2)
		f.PodSets[0].NodeSelector = map[string]string{"zone": "a", "tier": "b"}
		if change != nil {
			change(&f)
		}
		return f
	}
	same := facts(nil).EquivalenceKey()
	if got := facts(func(f *Facts) { f.UID, f.Name = "b", "another" }).EquivalenceKey(); got != same {
		t.Errorf("another workload of the same shape: %s, want %s", got, same)
	}
	seen := map[string]string{same: "as it was"}
	for name, change := range map[string]func(*Facts){
		"namespace": func(f *Facts) { f.Namespace = "x" }, "queue": func(f *Facts) { f.Queue = "x" },
		"cluster queue": func(f *Facts) { f.ClusterQueue = "x" }, "remote": func(f *Facts) { f.Remote = true },
		"flavor": func(f *Facts) { f.PodSets[0].Flavor = "x" }, "resource": func(f *Facts) { f.PodSets[0].Resource = "x" },
		"model": func(f *Facts) { f.PodSets[0].Model = "x" }, "devices": func(f *Facts) { f.PodSets[0].DevicesPerPod = 4 },
		"pods": func(f *Facts) { f.PodSets[0].Pods = 4 }, "no pod set": func(f *Facts) { f.PodSets = nil },
		"flavor labels": func(f *Facts) { f.PodSets[0].FlavorLabels = map[string]string{"zone": "a"} },
		"node selector": func(f *Facts) { f.PodSets[0].NodeSelector["zone"] = "b" },
		"hostile value": func(f *Facts) { f.PodSets[0].NodeSelector = map[string]string{"tier": "b\"\"zone\"\"a"} },
		"two pod sets":  func(f *Facts) { f.PodSets = append(f.PodSets, f.PodSets[0]) },
	} {
		key := facts(change).EquivalenceKey()
		if other, twice := seen[key]; twice {
			t.Errorf("%s is taken for %s: %s", name, other, key)
		}
		seen[key] = name
	}
}

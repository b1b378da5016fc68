package shape

import (
	"reflect"
	"slices"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

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
		{"preempts", func(f *Facts) { f.Preempts = true }},
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
		{"share of a claim", func(f *Facts) { f.PodSets[0].Share = &Share{Memory: 1, CorePercent: 2, Claimed: true} }},
		{"profile", func(f *Facts) { f.PodSets[0].Profile = &Profile{MemoryPeak: 1, Duration: 2} }},
		{"profile with another memory", func(f *Facts) { f.PodSets[0].Profile = &Profile{MemoryPeak: 2, Duration: 2} }},
		{"profile with another duration", func(f *Facts) { f.PodSets[0].Profile = &Profile{MemoryPeak: 1, Duration: 3} }},
		{"profile with a utilization", func(f *Facts) { f.PodSets[0].Profile = &Profile{MemoryPeak: 1, Duration: 2, UtilizationPercent: 30} }},
		{"profile with another utilization", func(f *Facts) { f.PodSets[0].Profile = &Profile{MemoryPeak: 1, Duration: 2, UtilizationPercent: 31} }},
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

// Each fact is part of the key, also a new one, except those that decide nothing.
func TestEquivalenceKeyHasEveryFact(t *testing.T) {
	names := []string{
		"Facts.UID",          // seeds the random choice among clusters with room
		"Facts.Name",         // only for messages
		"Facts.Unmeasured",   // only for messages
		"Facts.PodSets.Name", // only for messages
	}
	base := func() *Facts {
		f := job("a", 8, 2)
		f.References = []Reference{{Kind: v1alpha1.PrerequisiteSecret, Name: "token"}}
		f.PodSets[0].NodeLabels = []NodeLabel{{Key: "zone", Values: []string{"b"}}}
		f.PodSets[0].Tolerations = []Toleration{{Key: "dedicated", Value: "ml"}}
		f.PodSets[0].Share, f.PodSets[0].Profile = &Share{Memory: 1, MemoryPercent: 1, CorePercent: 1}, &Profile{MemoryPeak: 1, Duration: 1}
		return &f
	}
	for _, path := range fieldPaths(reflect.ValueOf(*base()), "Facts") {
		f := base()
		change(t, reflect.ValueOf(f).Elem(), path.indexes)
		isInKey := f.EquivalenceKey() != base().EquivalenceKey()
		if isIgnored := slices.Contains(names, path.name); isInKey == isIgnored {
			t.Errorf("%s is in the key: %t", path.name, isInKey)
		}
	}
}

// fieldPath leads to a field: through structs, pointers, and the first elements of slices.
type fieldPath struct {
	name    string
	indexes []int
}

func fieldPaths(v reflect.Value, name string, indexes ...int) []fieldPath {
	switch {
	case v.Kind() == reflect.Pointer:
		return fieldPaths(v.Elem(), name, indexes...)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		return fieldPaths(v.Index(0), name, indexes...)
	case v.Kind() != reflect.Struct:
		return []fieldPath{{name, indexes}}
	}
	var paths []fieldPath
	for i := range v.NumField() {
		paths = append(paths, fieldPaths(v.Field(i), name+"."+v.Type().Field(i).Name, append(slices.Clone(indexes), i)...)...)
	}
	return paths
}

// change gives a field another value.
func change(t *testing.T, v reflect.Value, indexes []int) {
	t.Helper()
	switch {
	case v.Kind() == reflect.Pointer:
		change(t, v.Elem(), indexes)
		return
	case v.Kind() == reflect.Slice && len(indexes) > 0:
		change(t, v.Index(0), indexes)
		return
	case len(indexes) > 0:
		change(t, v.Field(indexes[0]), indexes[1:])
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "-other")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 0.1)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"zone": "a"}))
	case reflect.Slice:
		v.Set(reflect.ValueOf([]string{"a"}))
	default:
		t.Fatalf("a field of type %s has no other value", v.Type())
	}
}

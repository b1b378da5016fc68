package components

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// differences are the modules that a family needs at another version than the repository.
var differences = map[string][]string{
	"shared": {"sigs.k8s.io/kueue"},                // the lab runs a patch release
	"thanos": {"github.com/prometheus/prometheus"}, // Thanos does not compile with a later one
}

// TestFamiliesUseTheVersionsOfTheRepository checks that no package is compiled at two versions,
// which would add minutes to the first build.
func TestFamiliesUseTheVersionsOfTheRepository(t *testing.T) {
	repository := requirements(t, filepath.Join(root, "go.mod"))
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			for module, version := range requirements(t, filepath.Join(f.dir(root), "go.mod")) {
				want, isCommon := repository[module]
				switch isDifferent := isCommon && version != want; {
				case isDifferent && !slices.Contains(differences[f.name], module):
					t.Errorf("%s/go.mod has %s %s, the repository's has %s: run `go get` in the folder of the older one",
						f.name, module, version, want)
				case !isDifferent && slices.Contains(differences[f.name], module):
					t.Errorf("%s is the same in %s/go.mod and in the repository's: remove it from the differences", module, f.name)
				}
			}
		})
	}
}

// requirements returns the version of each module that a go.mod requires.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	output, err := exec.Command("go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal(output, &mod); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, required := range mod.Require {
		versions[required.Path] = required.Version
	}
	for _, replaced := range mod.Replace {
		if _, isRequired := versions[replaced.Old.Path]; isRequired && replaced.New.Version != "" {
			versions[replaced.Old.Path] = replaced.New.Version
		}
	}
	if len(versions) < 50 {
		t.Fatalf("%s requires %d modules; is it complete?", file, len(versions))
	}
	return versions
}

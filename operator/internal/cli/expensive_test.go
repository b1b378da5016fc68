//go:build !race

package cli

import (
	"bytes"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// The tests of this file are much slower with the race detector. Others test the same goroutines with it.

// doctor names each fault of an installation with what repairs it.
func TestDoctorNamesFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("many runs of the command")
	}
	complete, err := txtar.ParseFile(filepath.Join("testdata", "script", "doctor.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if code, out := runDoctor(t, complete, ""); code != 0 {
		t.Fatalf("the complete installation has faults:\n%s", out)
	}
	for _, tc := range brokenInstallations {
		t.Run(tc.name, func(t *testing.T) {
			broken, changed := &txtar.Archive{}, tc.file == ""
			for _, f := range complete.Files {
				if f.Name == tc.file {
					text := regexp.MustCompile(tc.from).ReplaceAll(f.Data, []byte(tc.to))
					changed, f.Data = !bytes.Equal(text, f.Data), text
				}
				broken.Files = append(broken.Files, f)
			}
			if !changed {
				t.Fatal("nothing is broken")
			}
			code, out := runDoctor(t, broken, tc.absent)
			want := regexp.MustCompile(`(?m)^fault +` + tc.fault + `.*\n +→ .*` + regexp.QuoteMeta(tc.fix))
			if code != 1 || !want.MatchString(out) {
				t.Errorf("exit code %d, want %s in:\n%s", code, want, out)
			}
		})
	}
}

// A complete installation has no fault, whatever kind the user may not read.
func TestDoctorFindsNoFaultInWhatIsForbidden(t *testing.T) {
	if testing.Short() {
		t.Skip("many runs of the command")
	}
	for _, resource := range []string{"metricssources", "scoringpolicies", "placementgates", "capacitypolicies", "reclaimpolicies", "trialpolicies",
		"admissionchecks", "clusterqueues", "multikueueconfigs", "multikueueclusters", "localqueues", "workloads", "managedclusters", "placements",
		"deployments", "leases", "configmaps", "manifestworks", "clustermanagementaddons", "managedclusteraddons"} {
		t.Run(resource, func(t *testing.T) {
			files, err := txtar.ParseFile(filepath.Join("testdata", "script", "doctor.txtar"))
			if err != nil {
				t.Fatal(err)
			}
			files.Files = append(files.Files, txtar.File{Name: "forbidden", Data: []byte(resource + "\n")})
			code, out := runDoctor(t, files, "")
			if code != 0 || !regexp.MustCompile(`(?m)^skipped +.*your user may (not )?read`).MatchString(out) {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

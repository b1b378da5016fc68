package components

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the root of the repository.
const root = "../../.."

// installFakes writes programs that print a version, and returns their folder.
func installFakes(t *testing.T, outputs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, output := range outputs {
		script := "#!/bin/sh\ncat <<'END'\n" + output + "\nEND\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// emptyEnvironment hides the programs and the cache of this machine.
func emptyEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{binariesVariable, "KUBEBUILDER_ASSETS"} {
		t.Setenv(name, "")
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output() // XDG_CACHE_HOME changes it
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
}

func TestBuildTakesMatchingPrograms(t *testing.T) {
	const etcd, kubectl = "etcd Version: 3.6.8\nGit SHA: 1234567\nGo Version: go1.25.1", "Client Version: v1.36.3\nKustomize Version: v5.8.1"
	for _, variable := range []string{binariesVariable, "KUBEBUILDER_ASSETS", "PATH"} {
		t.Run(variable, func(t *testing.T) {
			emptyEnvironment(t)
			dir := installFakes(t, map[string]string{"etcd": etcd, "kubectl": kubectl})
			if variable == "PATH" {
				dir += ":" + os.Getenv("PATH")
			}
			t.Setenv(variable, dir)
			dir, _, _ = strings.Cut(dir, ":")
			var out bytes.Buffer
			b, err := Build(t.Context(), root, &out, "etcd", "kubectl")
			if err != nil {
				t.Fatal(err)
			}
			if got, want := b.Path("etcd"), filepath.Join(dir, "etcd"); got != want {
				t.Errorf("etcd is %s, want %s", got, want)
			}
			if want := fmt.Sprintf("lab: taken from %s: etcd, kubectl\n", dir); out.String() != want {
				t.Errorf("reported %q, want %q", out.String(), want)
			}
		})
	}
}

func TestReleasesOfOtherVersionsAreRefused(t *testing.T) {
	emptyEnvironment(t)
	dir := installFakes(t, map[string]string{
		"etcd":    "etcd Version: 3.6.80\nGo Version: go1.25.1",
		"kubectl": "Client Version: v1.36.3",
		"kueue":   "whatever", // the lab's build differs from the release
	})
	t.Setenv(binariesVariable, dir)
	var out bytes.Buffer
	found := findNamed(t.Context(), &out, []string{"etcd", "kubectl", "kueue"})
	if got := found.choose("etcd", "cached", false); got != "cached" {
		t.Errorf("etcd is %s, want the lab's own", got)
	}
	if got := found.choose("kueue", "cached", false); got != "cached" {
		t.Errorf("kueue is %s, want the lab's own", got)
	}
	if got, want := found.choose("kubectl", "cached", true), filepath.Join(dir, "kubectl"); got != want {
		t.Errorf("kubectl is %s, want that of the named folder, %s", got, want)
	}
	if want := "lab: " + dir + "/etcd is not taken: it reports `etcd Version: 3.6.80`, want version 3.6.8\n"; out.String() != want {
		t.Errorf("reported %q, want %q", out.String(), want)
	}
}

// The programs of a fleet run in folders of their own.
func TestReleasesOfARelativeFolderHaveAbsolutePaths(t *testing.T) {
	emptyEnvironment(t)
	dir := installFakes(t, map[string]string{"kubectl": "Client Version: v1.36.3"})
	t.Chdir(filepath.Dir(dir))
	t.Setenv(binariesVariable, filepath.Base(dir))
	found := findNamed(t.Context(), io.Discard, []string{"kubectl"})
	if got, want := found.choose("kubectl", "cached", false), filepath.Join(dir, "kubectl"); got != want {
		t.Errorf("kubectl is %s, want %s", got, want)
	}
}

// A program of the cache is taken without running others of its name.
func TestCachedProgramsNeedNoCandidates(t *testing.T) {
	emptyEnvironment(t)
	for _, f := range families {
		key, err := f.key(root)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "plimsoll", "lab", key)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range assetNames {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	trace := filepath.Join(t.TempDir(), "trace")
	candidates := t.TempDir()
	for _, name := range assetNames {
		if err := os.WriteFile(filepath.Join(candidates, name), []byte("#!/bin/sh\necho run >> "+trace+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", candidates+":"+os.Getenv("PATH"))
	t.Setenv("KUBEBUILDER_ASSETS", candidates)
	dir, err := Assets(t.Context(), root, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range assetNames {
		if target, err := os.Readlink(filepath.Join(dir, name)); err != nil || !strings.HasPrefix(target, os.Getenv("XDG_CACHE_HOME")) {
			t.Errorf("%s is %s, %v", name, target, err)
		}
	}
	if text, err := os.ReadFile(trace); err == nil {
		t.Errorf("candidates were run: %s", text)
	}
}

// The assets have no program of another version, even if it lies beside one of the right.
func TestAssetsHaveCheckedProgramsOnly(t *testing.T) {
	emptyEnvironment(t)
	folder := installFakes(t, map[string]string{"kube-apiserver": "Kubernetes " + kubernetesVersion, "kubectl": "Client Version: " + kubernetesVersion, "etcd": "etcd Version: 3.5.0"})
	other := installFakes(t, map[string]string{"etcd": "etcd Version: 3.6.8"})
	t.Setenv("KUBEBUILDER_ASSETS", folder)
	t.Setenv("PATH", other+":"+os.Getenv("PATH"))
	dir, err := Assets(t.Context(), root, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"kube-apiserver": folder, "kubectl": folder, "etcd": other} {
		if target, err := os.Readlink(filepath.Join(dir, name)); err != nil || filepath.Dir(target) != want {
			t.Errorf("%s is %s, want that of %s (%v)", name, target, want, err)
		}
	}
}

func TestCachedProgramsComeBeforePath(t *testing.T) {
	r := releases{fallback: map[string]string{"etcd": "/usr/bin/etcd"}}
	if got := r.choose("etcd", "cached", true); got != "cached" {
		t.Errorf("got %s, want the cached program", got)
	}
	if got := r.choose("etcd", "cached", false); got != "/usr/bin/etcd" {
		t.Errorf("got %s, want the program of $PATH", got)
	}
}

// TestReleasesArePinned checks that the lab takes only releases of the version that it
// builds.
func TestReleasesArePinned(t *testing.T) {
	for _, f := range families {
		content, err := os.ReadFile(filepath.Join(f.dir(root), "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.programs {
			for _, name := range p.names() {
				if r, ok := upstream[name]; ok && !strings.Contains(string(content), r.module+" "+moduleVersion(r)) {
					t.Errorf("the lab takes %s %s, but %s/go.mod does not require %s %s", name, r.version, f.name, r.module, moduleVersion(r))
				}
			}
		}
	}
	for name := range upstream {
		if !strings.Contains(strings.Join(All(), " "), name) {
			t.Errorf("no family builds %s", name)
		}
	}
}

// moduleVersion returns the version of the module that contains a release. Prometheus 3.14.0
// is in v0.314.0.
func moduleVersion(r release) string {
	if m := regexp.MustCompile(`^3\.(\d+)\.(\d+)$`).FindStringSubmatch(r.version); m != nil && r.module == "github.com/prometheus/prometheus" {
		return "v0.3" + m[1] + "." + m[2]
	}
	return "v" + strings.TrimPrefix(r.version, "v")
}

func TestUnknownProgram(t *testing.T) {
	emptyEnvironment(t)
	if _, err := Build(t.Context(), root, new(bytes.Buffer), "helm"); err == nil || !strings.Contains(err.Error(), `no program "helm"`) {
		t.Errorf("got %v, want an error that names helm", err)
	}
}

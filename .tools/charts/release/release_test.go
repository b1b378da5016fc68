package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/tools/charts"
)

const (
	operatorDigest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	exporterDigest = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestMain(m *testing.M) {
	if err := charts.Prepare(context.Background(), "../../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// testOptions returns options for a release of the repository's manifests and charts, with
// a command line tool that compiles quickly.
func testOptions(t *testing.T) options {
	t.Helper()
	repository, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	root, images := t.TempDir(), t.TempDir()
	for _, folder := range []string{"config", "dashboards"} {
		if err := os.Symlink(filepath.Join(repository, folder), filepath.Join(root, folder)); err != nil {
			t.Fatal(err)
		}
	}
	for file, content := range map[string]string{
		filepath.Join(root, "go.mod"):                                   "module example.com/small\n\ngo 1.26.0\n",
		filepath.Join(root, "LICENSE"):                                  "the license",
		filepath.Join(root, "CHANGELOG.md"):                             "# Changelog\n\n## [Unreleased]\n\n- next\n\n## [0.0.1] - 2026-01-01\n\n- first\n\n## [0.0.0]\n\n- none\n",
		filepath.Join(root, "small", "main.go"):                         "package main\n\nvar version = \"none\"\n\nfunc main() { println(version) }\n",
		filepath.Join(images, "digests.txt"):                            "r.example.com/p/plimsoll-operator@" + operatorDigest + "\nr.example.com/p/plimsoll-exporter@" + exporterDigest + "\n",
		filepath.Join(images, "plimsoll-operator-linux-amd64.cdx.json"): "{}",
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	progress, err := os.Create(filepath.Join(t.TempDir(), "progress"))
	if err != nil {
		t.Fatal(err)
	}
	return options{root: root, output: t.TempDir(), images: images, version: "v0.0.1", created: 1_700_000_000, cli: "./small", ldflags: "-s -w -X main.version=stamped", progress: progress}
}

func read(t *testing.T, o options, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(o.output, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRelease(t *testing.T) {
	o := testOptions(t)
	if err := o.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := o.files()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"NOTES.md", "checksums.txt", "digests.txt", "exporter.yaml", "install.yaml", "krew.yaml",
		"kubectl-plimsoll_v0.0.1_darwin_amd64.tar.gz", "kubectl-plimsoll_v0.0.1_darwin_arm64.tar.gz",
		"kubectl-plimsoll_v0.0.1_linux_amd64.tar.gz", "kubectl-plimsoll_v0.0.1_linux_arm64.tar.gz",
		"plimsoll-0.0.1.tgz", "plimsoll-exporter-0.0.1.tgz", "plimsoll-fleet-0.0.1.tgz", "plimsoll-operator-linux-amd64.cdx.json",
	}
	if d := cmp.Diff(want, files); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	checkManifests(t, o)
	checkChart(t, o, "plimsoll-0.0.1.tgz", "image: r.example.com/p/plimsoll-operator@"+operatorDigest)
	checkChart(t, o, "plimsoll-exporter-0.0.1.tgz", "image: r.example.com/p/plimsoll-exporter@"+exporterDigest)
	checkChart(t, o, "plimsoll-fleet-0.0.1.tgz", "image: r.example.com/p/plimsoll-exporter@"+exporterDigest)
	checkKrew(t, o)
	if notes := read(t, o, "NOTES.md"); !strings.Contains(notes, "- first\n") || strings.Contains(notes, "- next") || strings.Contains(notes, "- none") ||
		!strings.Contains(notes, operatorDigest) || !strings.Contains(notes, "This release is not signed.") {
		t.Errorf("notes:\n%s", notes)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", "cd "+o.output+" && sha256sum --strict -c checksums.txt").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if sums := read(t, o, "checksums.txt"); strings.Count(sums, "\n") != len(files)-1 {
		t.Errorf("checksums:\n%s", sums)
	}
	if progress, err := os.ReadFile(o.progress.Name()); err != nil || !strings.Contains(string(progress), "UNSIGNED: set SIGNING_KEY") {
		t.Errorf("%v: %s", err, progress)
	}
}

func checkManifests(t *testing.T, o options) {
	t.Helper()
	install := read(t, o, "install.yaml")
	for _, want := range []string{"image: r.example.com/p/plimsoll-operator@" + operatorDigest + "\n", "kind: CustomResourceDefinition", "kind: Deployment", "kind: ValidatingAdmissionPolicy\n"} {
		if !strings.Contains(install, want) {
			t.Errorf("install.yaml has no %q", want)
		}
	}
	if exporter := read(t, o, "exporter.yaml"); strings.Count(exporter, "image: r.example.com/p/plimsoll-exporter@"+exporterDigest+"\n") != 3 {
		t.Error("exporter.yaml does not name the image of all DaemonSets by digest")
	}
}

// checkChart loads a packed chart as Helm does.
func checkChart(t *testing.T, o options, name, image string) {
	t.Helper()
	c, err := loader.Load(filepath.Join(o.output, name))
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != "0.0.1" || c.Metadata.AppVersion != "v0.0.1" {
		t.Errorf("%s: version %s of %s", name, c.Metadata.Version, c.Metadata.AppVersion)
	}
	values, err := chartutil.ToRenderValues(c, nil, chartutil.ReleaseOptions{Name: "test", Namespace: "x"}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, text := range files {
		all.WriteString(text)
	}
	if !strings.Contains(all.String(), image) {
		t.Errorf("%s: no %s", name, image)
	}
}

// checkKrew checks the manifest of the plugin, and that each archive has the program.
func checkKrew(t *testing.T, o options) {
	t.Helper()
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, o, "krew.yaml")), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Spec.Version != "v0.0.1" || len(manifest.Spec.Platforms) != 4 {
		t.Errorf("manifest %+v", manifest)
	}
	sums := read(t, o, "checksums.txt")
	for _, p := range manifest.Spec.Platforms {
		name, ok := strings.CutPrefix(p.URI, "https://plimsoll.dev/releases/v0.0.1/")
		if !ok || !strings.Contains(sums, p.SHA256+"  "+name+"\n") {
			t.Errorf("%s has another checksum than %s", p.URI, p.SHA256)
		}
		if got := namesIn(t, filepath.Join(o.output, name)); !slices.Equal(got, []string{p.Bin, "LICENSE"}) {
			t.Errorf("%s contains %v", name, got)
		}
	}
}

func namesIn(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	compressed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

// Without a registry, no node can pull the images, and the release says so. The archives that can be
// loaded instead contain them by tag.
func TestReleaseWithoutARegistry(t *testing.T) {
	o := testOptions(t)
	const notice = "No registry was set"
	for _, names := range []string{"r.example.com/p/", ""} {
		want := names == ""
		digests := names + "plimsoll-operator@" + operatorDigest + "\n" + names + "plimsoll-exporter@" + exporterDigest + "\n"
		if err := os.WriteFile(filepath.Join(o.images, "digests.txt"), []byte(digests), 0o600); err != nil {
			t.Fatal(err)
		}
		images, err := readDigests(filepath.Join(o.images, "digests.txt"))
		if err != nil {
			t.Fatal(err)
		}
		if err := o.writeNotes(images, false); err != nil {
			t.Fatal(err)
		}
		notes := read(t, o, "NOTES.md")
		if got := strings.Contains(notes, notice); got != want {
			t.Errorf("images %q: the notes name the missing registry: %t, want %t", names, got, want)
		}
		// Without --name, kind loads into the cluster "kind".
		if got := strings.Contains(notes, "kind load image-archive FILE --name NAME"); got != want {
			t.Errorf("images %q: the notes name the kind cluster to load into: %t, want %t", names, got, want)
		}
	}
	if err := o.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if install := read(t, o, "install.yaml"); !strings.Contains(install, "image: plimsoll-operator:v0.0.1\n") {
		t.Error("install.yaml does not name the operator's image by tag")
	}
	if exporter := read(t, o, "exporter.yaml"); strings.Count(exporter, "image: plimsoll-exporter:v0.0.1\n") != 3 {
		t.Error("exporter.yaml does not name the image of all DaemonSets by tag")
	}
	checkChart(t, o, "plimsoll-0.0.1.tgz", "image: plimsoll-operator:v0.0.1")
	checkChart(t, o, "plimsoll-exporter-0.0.1.tgz", "image: plimsoll-exporter:v0.0.1")
	checkChart(t, o, "plimsoll-fleet-0.0.1.tgz", "image: plimsoll-exporter:v0.0.1")
}

// Two releases of one commit have the same files.
func TestReleasesAreReproducible(t *testing.T) {
	var sums [2]string
	for i := range sums {
		o := testOptions(t)
		if err := o.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		sums[i] = read(t, o, "checksums.txt")
	}
	if d := cmp.Diff(sums[0], sums[1]); d != "" {
		t.Error(d)
	}
}

func TestSignature(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(t)
	o.key = filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(o.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(read(t, o, "checksums.txt.sig")))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(read(t, o, "checksums.txt")))
	if !ecdsa.VerifyASN1(&key.PublicKey, sum[:], signature) {
		t.Error("the signature is wrong")
	}
	if notes := read(t, o, "NOTES.md"); !strings.Contains(notes, "openssl dgst") || strings.Contains(notes, "not signed") {
		t.Errorf("notes:\n%s", notes)
	}
}

func TestRefusedReleases(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(o *options)
		want   string
	}{
		"version":   {func(o *options) { o.version = "dev" }, "must be like v1.2.3"},
		"no images": {func(o *options) { o.images = o.output }, "digests.txt"},
		"missing digest": {func(o *options) {
			writeText(t, filepath.Join(o.images, "digests.txt"), "plimsoll-operator@"+operatorDigest+"\n")
		}, "no digest of plimsoll-exporter"},
		"key in no PEM":   {func(o *options) { o.key = filepath.Join(o.root, "LICENSE") }, "not in PEM"},
		"no such key":     {func(o *options) { o.key = "none.pem" }, "none.pem"},
		"failed compiler": {func(o *options) { o.cli = "./none" }, "go build for linux/amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t)
			tc.change(&o)
			if err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Error(err)
			}
		})
	}
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

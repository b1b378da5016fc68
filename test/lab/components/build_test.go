package components

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// testFamily makes a module with the programs one and two the only family, and returns the
// root of its repository.
func testFamily(t *testing.T) string {
	t.Helper()
	emptyEnvironment(t)
	root := t.TempDir()
	f := family{name: "numbers", cpu: time.Minute, programs: []program{
		{name: "one", pkg: "./one", links: []string{"uno"}},
		{name: "two", pkg: "./two", onDemand: true},
	}}
	files := map[string]string{"go.mod": "module numbers\n\ngo 1.26.0\n"}
	for _, p := range f.programs {
		files[p.name+"/main.go"] = "package main\n\nfunc main() {}\n"
	}
	for name, content := range files {
		path := filepath.Join(f.dir(root), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	before := families
	families = []family{f}
	t.Cleanup(func() { families = before })
	return root
}

func TestBuildOnlyWhatIsNeeded(t *testing.T) {
	root := testFamily(t)
	var out bytes.Buffer
	b, err := Build(t.Context(), root, &out, OfFleet()...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.Path("uno")); err != nil {
		t.Errorf("no link to the program: %v", err)
	}
	if b.Path("two") != "" {
		t.Errorf("two is %s, although only tests need it", b.Path("two"))
	}
	for _, want := range []string{"lab: building one: up to ", " idle cores", "of processor time", "Go's build cache"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	built, err := os.Stat(b.Path("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Build(t.Context(), root, &out, All()...); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(b.Path("one")); err != nil || !again.ModTime().Equal(built.ModTime()) {
		t.Errorf("one was built again: %v", err)
	}
	if !strings.Contains(out.String(), "lab: building two: ") {
		t.Errorf("two was not built:\n%s", out.String())
	}
	out.Reset()
	if _, err := Build(t.Context(), root, &out, All()...); err != nil || out.Len() > 0 {
		t.Errorf("all programs are cached, but Build wrote %q (%v)", out.String(), err)
	}
}

// TestBuildAfterKill starts from the remains of a build that was killed.
func TestBuildAfterKill(t *testing.T) {
	root := testFamily(t)
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	key, err := families[0].key(root)
	if err != nil {
		t.Fatal(err)
	}
	building := filepath.Join(cache, key, "building")
	if err := errors.Join(os.MkdirAll(building, 0o755), os.WriteFile(filepath.Join(building, "one"), []byte("half"), 0o755),
		os.Symlink("one", filepath.Join(cache, key, "uno"))); err != nil {
		t.Fatal(err)
	}
	b, err := Build(t.Context(), root, io.Discard, "uno")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(b.Path("uno")); err != nil || info.Size() < 1000 {
		t.Errorf("uno is no program: %v", err)
	}
}

func TestBuildWaitsForAnotherProcess(t *testing.T) {
	root := testFamily(t)
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := lockCache(t.Context(), cache, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	if _, err := Build(ctx, root, &out, "one"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that it waits", err)
	}
	if !strings.Contains(out.String(), "waiting for another process") {
		t.Errorf("got %q, want the reason why it waits", out.String())
	}
}

func TestBundleFillsTheCache(t *testing.T) {
	root := testFamily(t)
	file := filepath.Join(t.TempDir(), "dist", "lab.tar.gz")
	if err := Bundle(t.Context(), root, file, io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	unpack(t, file, cache)
	var out bytes.Buffer
	b, err := Build(t.Context(), root, &out, All()...)
	if err != nil || out.Len() > 0 {
		t.Errorf("Build wrote %q (%v), want nothing", out.String(), err)
	}
	for _, name := range []string{"one", "uno", "two"} {
		if info, err := os.Stat(b.Path(name)); err != nil || info.Mode().Perm()&0o111 == 0 {
			t.Errorf("%s can't be run: %v", name, err)
		}
	}
}

func unpack(t *testing.T, file, dir string) {
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
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, header.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if header.Linkname != "" {
			err = os.Symlink(header.Linkname, path)
		} else {
			err = os.WriteFile(path, content, header.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestOfFleet(t *testing.T) {
	for _, name := range []string{"promtool", "ocm"} {
		if slices.Contains(OfFleet(), name) || !slices.Contains(All(), name) {
			t.Errorf("%s is a program of the fleet, want that it is built on demand", name)
		}
	}
}

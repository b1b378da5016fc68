// Command release writes the files of a release: charts, manifests and the command line
// tool for each platform, with checksums, a manifest for krew, notes and, with a key, a
// signature. `make release` calls it after `make images`.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/tools/charts"
)

// options are the values of the command line.
type options struct {
	root      string // of the repository
	output    string
	version   string // with a leading v
	images    string // output folder of make images
	ldflags   string
	created   int64 // Unix time of all files, so that two releases are equal
	downloads string
	key       string
	cli       string // package of the command line tool
	progress  *os.File
}

func main() {
	o := options{cli: "./operator/cmd/kubectl-plimsoll", progress: os.Stdout}
	flag.StringVar(&o.root, "root", "../..", "root of the repository")
	flag.StringVar(&o.output, "out", "", "output folder; default: dist/release/VERSION in the repository")
	flag.StringVar(&o.version, "version", "", "version, such as v1.2.3 or v1.2.3-rc.1")
	flag.StringVar(&o.images, "images", "", "output folder of make images; default: dist/images in the repository")
	flag.StringVar(&o.ldflags, "ldflags", "-s -w", "linker flags")
	flag.Int64Var(&o.created, "created", 0, "Unix time of the files, for example the time of the commit")
	flag.StringVar(&o.downloads, "downloads", "", "URL of the folder that the files will be downloaded from; default: https://plimsoll.dev/releases/VERSION")
	flag.StringVar(&o.key, "key", "", "PEM file with an ECDSA key that signs the checksums; without it the release is unsigned")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := charts.Prepare(ctx, o.root)
	if err == nil {
		err = o.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var semver = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func (o options) time() time.Time { return time.Unix(o.created, 0).UTC() }

// chartVersion is the version without v, as Helm requires it.
func (o options) chartVersion() string { return strings.TrimPrefix(o.version, "v") }

// run writes all files of the release to a new folder.
func (o options) run(ctx context.Context) error {
	if !semver.MatchString(o.version) {
		return fmt.Errorf("VERSION must be like v1.2.3 or v1.2.3-rc.1, not %q", o.version)
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	o.root = root
	o.setDefaults()
	images, err := readDigests(filepath.Join(o.images, "digests.txt"))
	if err != nil {
		return fmt.Errorf("read the digests of the images: %w", err)
	}
	var sign signer
	if o.key != "" {
		if sign, err = readKey(o.key); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(o.output); err != nil {
		return err
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return o.writeManifests(images) },
		func() error { return o.writeCharts(images) },
		func() error { return o.copyImageFiles() },
		func() error { return o.writeCLI(ctx) },
		func() error { return o.writeKrewManifest() },
		func() error { return o.writeNotes(images, sign != nil) },
		func() error { return o.writeChecksums(sign) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return o.list(images, sign != nil)
}

func (o *options) setDefaults() {
	if o.output == "" {
		o.output = filepath.Join(o.root, "dist", "release", o.version)
	}
	if o.images == "" {
		o.images = filepath.Join(o.root, "dist", "images")
	}
	if o.downloads == "" {
		o.downloads = "https://plimsoll.dev/releases/" + o.version
	}
}

// list prints the files of the release, and what it lacks.
func (o options) list(images map[string]image, signed bool) error {
	files, err := o.files()
	if err != nil {
		return err
	}
	for _, file := range files {
		fmt.Fprintln(o.progress, filepath.Join(o.output, file))
	}
	if !images[requiredImages[0]].hasRegistry() {
		fmt.Fprintln(o.progress, "NO REGISTRY: no node can pull the images. Set REGISTRY, or load dist/images/*.tar on each node")
	}
	if !signed {
		fmt.Fprintln(o.progress, "UNSIGNED: set SIGNING_KEY to a PEM file with an ECDSA key to sign checksums.txt")
	}
	return nil
}

// files returns the names of the files of the release, sorted.
func (o options) files() ([]string, error) {
	entries, err := os.ReadDir(o.output)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// write writes a file of the release.
func (o options) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(o.output, name), content, 0o644)
}

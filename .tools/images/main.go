// Command images builds the images of Plimsoll without a container daemon: it compiles
// the programs, packs each into an image for every platform, and writes OCI layouts,
// archives, SBOMs and digests. With --push it also pushes the images to a registry.
// `make images` calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// options are the values of the command line.
type options struct {
	root      string // of the repository
	output    string
	version   string
	ldflags   string
	created   int64 // Unix time of all files and images, so that two builds are equal
	revision  string
	source    string
	base      string
	registry  string
	platforms string
	images    string
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "../..", "root of the repository")
	flag.StringVar(&o.output, "out", "", "output folder; default: dist/images in the repository")
	flag.StringVar(&o.version, "version", "dev", "version and tag of the images")
	flag.StringVar(&o.ldflags, "ldflags", "-s -w", "linker flags")
	flag.Int64Var(&o.created, "created", 0, "Unix time of the images, for example the time of the commit")
	flag.StringVar(&o.revision, "revision", "", "commit, for the label org.opencontainers.image.revision")
	flag.StringVar(&o.source, "source", "", "URL for the label org.opencontainers.image.source")
	flag.StringVar(&o.base, "base", "", "base image of the exporter: host (the C library of this machine), NAME@sha256:DIGEST in a registry, or the folder of an OCI layout or of a root file system")
	flag.StringVar(&o.registry, "push", "", "registry and path to push to, for example registry.example.com/plimsoll")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64", "comma-separated platforms")
	flag.StringVar(&o.images, "images", "operator,cli,exporter", "comma-separated images")
	onlyLicenses := flag.Bool("check-licenses", false, "only check the licenses of the programs' modules")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	action := o.run
	if *onlyLicenses {
		action = o.checkLicenses
	}
	if err := action(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run builds the selected images in order and stops at the first error.
func (o options) run(ctx context.Context) error {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	o.root = root
	if o.output == "" {
		o.output = filepath.Join(root, "dist", "images")
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return err
	}
	digests, err := os.Create(filepath.Join(o.output, "digests.txt"))
	if err != nil {
		return err
	}
	defer func() { _ = digests.Close() }() // every write is checked
	for _, short := range strings.Split(o.images, ",") {
		p, ok := programs[short]
		if !ok {
			return fmt.Errorf("--images must list operator, cli and exporter, but contains %q", short)
		}
		digest, err := o.build(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if _, err := fmt.Fprintf(digests, "%s@%s\n", o.reference(p), digest); err != nil {
			return err
		}
		fmt.Printf("%s@%s\n", o.reference(p), digest)
	}
	return nil
}

// reference returns the name of the image with its registry, if there is one.
func (o options) reference(p program) string {
	if o.registry == "" {
		return p.name
	}
	return strings.TrimSuffix(o.registry, "/") + "/" + p.name
}

func (o options) time() time.Time { return time.Unix(o.created, 0).UTC() }

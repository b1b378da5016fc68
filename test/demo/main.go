// Command demo runs a fleet on this machine and shows how Plimsoll works: a metric
// changes, the scores and OCM's decision follow, and jobs run where they fit. It
// exits with 0 only if every step succeeds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func main() {
	log.SetLogger(logr.Discard()) // client-go and the embedded hub log repeated failures
	o := options{}
	flag.BoolVar(&o.keep, "keep", false, "keep the fleet running after the last step, until Ctrl-C")
	flag.BoolVar(&o.quick, "quick", false, "end after the part in one process, before the fleet")
	flag.StringVar(&o.dir, "dir", "", "folder for the fleet's state (default: see `go run ./test/lab --help`)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	keep, quick bool
	dir         string
}

// run runs the embedded part. Meanwhile the fleet is built and started, on which the
// remaining steps run.
func run(ctx context.Context, o options) error {
	start := time.Now()
	fmt.Print(introduction)
	if o.dir == "" {
		var err error
		if o.dir, err = fleet.DefaultDir(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	screen := newScreen(os.Stdout)
	b, err := runEmbedded(ctx, o, screen, cancel)
	if b == nil {
		return err
	}
	if err != nil {
		cancel(err)
	} else {
		fmt.Print(fleetIntroduction)
	}
	f, upErr := b.wait()
	if f != nil {
		defer f.Stop()
	}
	if err != nil || upErr != nil {
		return errors.Join(err, upErr)
	}
	return runOnFleet(ctx, cancel, o, &demo{fleet: f, screen: screen, start: start})
}

// runEmbedded runs the part in one process. Unless the demo ends there, it starts the
// fleet in the background and returns it.
func runEmbedded(ctx context.Context, o options, s *screen, cancel context.CancelCauseFunc) (*background, error) {
	root, err := fleet.FindRoot()
	if err != nil {
		return nil, err
	}
	nodes, err := fleet.UpNodes(ctx, fleet.Options{Dir: filepath.Join(o.dir, "embedded"), Root: root, Progress: os.Stdout})
	if err != nil {
		return nil, err
	}
	defer nodes.Stop()
	d, err := newEmbeddedDemo(ctx, nodes, root, s)
	if err != nil {
		return nil, err
	}
	var b *background
	if !o.quick {
		b = startFleet(ctx, o.dir, os.Stdout, cancel)
		d.progress = b.progress
	}
	runCtx, end := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return d.prometheus.Run(runCtx) })
	g.Go(func() error { d.hub.Run(runCtx); return nil })
	err = d.runSteps(ctx)
	end()
	return b, errors.Join(err, g.Wait())
}

func runOnFleet(ctx context.Context, cancel context.CancelCauseFunc, o options, d *demo) error {
	go func() {
		select {
		case err := <-d.fleet.Failed():
			cancel(err)
		case <-ctx.Done():
		}
	}()
	err := d.runSteps(ctx)
	d.printSummary()
	if err != nil && !o.keep {
		return fmt.Errorf("%w\nthe logs are in %s/logs; `make demo KEEP=1` keeps the fleet running, so that you can explore it", err, d.fleet.Dir())
	}
	if o.keep {
		fmt.Printf("\n%s", d.fleet.Hints(d.anyJob()))
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return errors.Join(err, cause)
		}
	}
	return err
}

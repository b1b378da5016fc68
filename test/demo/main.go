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
	"syscall"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func main() {
	keep := flag.Bool("keep", false, "keep the fleet running after the last step, until Ctrl-C")
	dir := flag.String("dir", "", "folder for the fleet's state (default: see `go run ./test/lab --help`)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *keep); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, keep bool) error {
	start := time.Now()
	fmt.Print(introduction)
	f, err := fleet.Up(ctx, fleet.Options{Dir: dir, Progress: os.Stdout})
	if err != nil {
		return err
	}
	defer f.Stop()
	d := &demo{fleet: f, screen: newScreen(os.Stdout), start: start}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-f.Failed():
			cancel(err)
		case <-ctx.Done():
		}
	}()
	err = d.runSteps(ctx)
	d.printSummary()
	if err != nil && !keep {
		return fmt.Errorf("%w\nthe logs are in %s/logs; `make demo KEEP=1` keeps the fleet running, so that you can explore it", err, f.Dir())
	}
	if keep {
		fmt.Printf("\n%s", f.Hints())
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return errors.Join(err, cause)
		}
	}
	return err
}

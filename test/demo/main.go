// Command demo boots a fleet on this machine and runs Plimsoll's main job
// through it: a metric changes, a score follows, a decision moves, a job runs on
// the cluster that can take it. It exits with 0 only if every step was seen.
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
	keep := flag.Bool("keep", false, "leave the fleet running at the end, until Ctrl-C")
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
	f, err := fleet.Up(ctx, fleet.Options{Dir: dir, Out: os.Stdout})
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
	err = d.steps(ctx)
	d.summary()
	if err != nil && !keep {
		return fmt.Errorf("%w\nlogs are in %s/logs; `make demo KEEP=1` leaves the fleet running to look around", err, f.Dir())
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

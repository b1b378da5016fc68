// Command plimsoll-exporter exports metrics of a node's accelerators to Prometheus.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := kingpin.New("plimsoll-exporter", "Exports metrics of a node's GPUs and TPUs: their state, which pods hold them, and which are free. "+
		"All dcgm-exporter flags and environment variables are accepted. Those that only apply to DCGM are ignored with one warning each.")
	app.Version(version.Print("plimsoll-exporter"))
	app.VersionFlag.Short('v') // as in dcgm-exporter
	app.HelpFlag.Short('h')
	o := newOptions(app)
	app.Command("serve", "Serve metrics. This is the default command.").Default()
	doctor := app.Command("doctor", "Check which metrics this node provides and explain why others are missing. Exit status: 0 if all checks pass, 1 if a check fails, 2 for invalid arguments.")
	doctor.Flag("output", "Output format: text or json. Short form: -o.").Default("text").EnumVar(&o.output, "text", "json")
	command, err := app.Parse(normalizeArgs(app, os.Args[1:]))
	if err != nil {
		fmt.Fprintf(os.Stderr, "plimsoll-exporter: %v; try --help\n", err)
		os.Exit(2)
	}
	run := o.run
	if command == doctor.FullCommand() {
		run = o.runDoctor
	}
	if err := runUntilStopped(ctx, run); err != nil {
		fmt.Fprintln(os.Stderr, "plimsoll-exporter:", err)
		os.Exit(1)
	}
}

// stopLimit is the time in which the exporter stops after a signal. It is longer than the
// limits for open scrapes and for closing the libraries together.
const stopLimit = 8 * time.Second

// runUntilStopped runs the exporter and returns its error. If the exporter does not return
// within stopLimit after ctx ends, for example because a file server does not respond,
// runUntilStopped returns anyway.
func runUntilStopped(ctx context.Context, run func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(stopLimit):
		return fmt.Errorf("a call has not returned within %s after the signal to stop; exiting", stopLimit)
	}
}

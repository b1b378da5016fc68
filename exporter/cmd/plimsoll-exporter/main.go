// Command plimsoll-exporter exposes a node's accelerators to Prometheus.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := kingpin.New("plimsoll-exporter", "Exposes a node's GPUs, who holds them, and what is free.")
	o := newOptions(app)
	if _, err := app.Parse(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "plimsoll-exporter: %v; try --help\n", err)
		os.Exit(2)
	}
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "plimsoll-exporter:", err)
		os.Exit(1)
	}
}

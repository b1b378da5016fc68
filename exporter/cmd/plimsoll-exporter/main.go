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
	app.Command("serve", "Serve metrics until the end; what happens without a command.").Default()
	doctor := app.Command("doctor", "Say what this node can and can't give, and why. It ends with 0 when nothing is missing, 1 when something is, 2 when it was asked wrongly.")
	doctor.Flag("output", "text or json; -o for short.").Default("text").EnumVar(&o.output, "text", "json")
	command, err := app.Parse(normalize(app, os.Args[1:]))
	if err != nil {
		fmt.Fprintf(os.Stderr, "plimsoll-exporter: %v; try --help\n", err)
		os.Exit(2)
	}
	run := o.run
	if command == doctor.FullCommand() {
		run = o.doctor
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "plimsoll-exporter:", err)
		os.Exit(1)
	}
}

// Command plimsoll-operator runs the hub's controllers: it turns PromQL answers into
// AddOnPlacementScores and gates Kueue's workloads by what clusters can take.
package main

import (
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return 2
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: o.logLevel}))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	cfg, err := o.restConfig()
	if err != nil {
		log.Error("no API server to talk to: set --kubeconfig, KUBECONFIG, or run in a cluster", "error", err)
		return 1
	}
	mgr, err := newManager(cfg, o)
	if err == nil {
		err = setup(mgr, o)
	}
	if err != nil {
		log.Error("can't start", "error", err)
		return 1
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Error("stopped", "error", err)
		return 1
	}
	return 0
}

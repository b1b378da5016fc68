// Command plimsoll-operator runs the controllers of the hub. They turn the results of
// PromQL queries into AddOnPlacementScores, and admit workloads of Kueue to clusters that
// have room for them.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/common/version"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no CA certificates of its own
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() { os.Exit(run(os.Args[1:])) }

// run returns the exit code: 0 after a regular stop, 1 after a failure, and 2 for a wrong
// command line.
func run(args []string) int {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return 2
	}
	if o.version {
		fmt.Println(version.Print("plimsoll-operator"))
		return 0
	}
	handler := newLogHandler(os.Stderr, o.logFormat, o.logLevel)
	log := slog.New(handler)
	setLoggers(handler)
	cfg, err := o.restConfig()
	if err != nil {
		log.Error("Could not find the API server of the hub: set --kubeconfig or KUBECONFIG, or run in a cluster", "error", err)
		return 1
	}
	mgr, err := newManager(cfg, o)
	if err == nil {
		err = setup(mgr, o)
	}
	if err != nil {
		log.Error("Could not start", "error", err)
		return 1
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Error("Stopped by an error", "error", err)
		return 1
	}
	return 0
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"k8s.io/klog/v2" //nolint:depguard // passes its lines to slog

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// run serves metrics until ctx ends, or prints them with --once.
func (o *options) run(ctx context.Context) error {
	log := o.logger()
	klog.SetSlogLogger(log) // client-go logs through klog
	o.ignored.warn(log)
	for _, name := range o.unknownVariables {
		log.Warn("ignoring an environment variable that dcgm-exporter does not have", "variable", name)
	}
	pods, sources, err := o.prepare(log)
	if err != nil {
		return err
	}
	defer closeWithin(closeTimeout, sources, pods, log)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // without a receiver, SIGHUP would end the process
	defer signal.Stop(hangups)
	config := o.collectorConfig(log)
	stopWatch, err := o.watchPods(ctx, &config, log)
	if err != nil {
		return err
	}
	defer stopWatch()
	stopClaims, err := o.readClaims(ctx, &config, log)
	if err != nil {
		return err
	}
	defer stopClaims()
	c := collector.New(config, pods, sources...)
	if err := o.selectCounters(ctx, c, log); err != nil {
		return err
	}
	if err := c.CheckDevices(ctx); err != nil {
		return err
	}
	if o.once {
		return printOnce(ctx, c, os.Stdout)
	}
	if o.strict {
		if err := errors.Join(c.Collect(ctx), o.kubeletError(pods)); err != nil {
			return fmt.Errorf("%w (--strict)", err)
		}
	}
	go o.reloadCounters(ctx, c, hangups, log)
	return o.serve(ctx, c, log)
}

// closeTimeout limits the time to close the vendors' libraries.
const closeTimeout = 2 * time.Second

// closeWithin closes the sources and the connection to the kubelet. After the timeout it
// returns anyway, because a driver whose lock is held never returns.
func closeWithin(timeout time.Duration, sources []collector.NamedSource, pods *podmap.Poller, log *slog.Logger) {
	done := make(chan error, 1)
	go func() { done <- errors.Join(closeAll(sources), pods.Close()) }()
	select {
	case err := <-done:
		if err != nil {
			log.Warn("cannot close all sources", "err", err)
		}
	case <-time.After(timeout):
		log.Warn("the driver does not respond; exiting without closing its library")
	}
}

// kubeletError returns the error of the last query to the kubelet, and nil with
// --no-kubernetes.
func (o *options) kubeletError(pods *podmap.Poller) error {
	if !o.kubernetes {
		return nil
	}
	_, err := pods.Last()
	return err
}

// pauseForRates is the time between the two readings of --once. The profiling counters
// need at least 100 ms.
const pauseForRates = 250 * time.Millisecond

// printOnce collects twice and prints the metrics of the second collection. Rates need two
// collections.
func printOnce(ctx context.Context, c *collector.Collector, out io.Writer) error {
	if err := c.Collect(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pauseForRates):
	}
	if err := c.Collect(ctx); err != nil {
		return err
	}
	return c.WriteText(out)
}

// maxHeaderBytes limits the headers of a request. Any pod may send one, and the memory of the
// exporter is small.
const maxHeaderBytes = 16 << 10

// serve collects in the background and serves HTTP until ctx ends.
func (o *options) serve(ctx context.Context, c *collector.Collector, log *slog.Logger) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40) // allocations are rare, so less memory is worth the CPU time
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	collected := make(chan error, 1)
	go func() { defer stop(); collected <- c.Run(ctx) }()
	if o.address != "" {
		*o.web.WebListenAddresses = []string{o.address}
	}
	if o.webConfigFile != "" {
		*o.web.WebConfigFile = o.webConfigFile
	}
	if o.systemdSocket {
		*o.web.WebSystemdSocket = true
	}
	handler := c.Handler()
	if o.pprof {
		handler = withPprof(handler)
	}
	server := &http.Server{Handler: handler, MaxHeaderBytes: maxHeaderBytes, ReadTimeout: timeout("--web-read-timeout", o.readTimeout, defaultReadTimeout, log),
		WriteTimeout: timeout("--web-write-timeout", o.writeTimeout, defaultWriteTimeout, log)}
	if err := listenAndServe(ctx, server, o.web, log); err != nil {
		return err
	}
	return <-collected
}

// shutdownTimeout limits the time for scrapes in progress after a signal to stop.
const shutdownTimeout = 5 * time.Second

// listenAndServe serves HTTP until ctx ends and the requests in progress have their responses.
func listenAndServe(ctx context.Context, server *http.Server, flags *web.FlagConfig, log *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	shutDown := make(chan struct{})
	go func() {
		defer close(shutDown)
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = server.Shutdown(limited) // the end of the process closes the remaining connections
	}()
	err := web.ListenAndServe(server, flags, log)
	stop()
	<-shutDown
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// withPprof adds the profiles at /debug/pprof to a handler.
func withPprof(handler http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

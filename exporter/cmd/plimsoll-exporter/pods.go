package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/kube"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// podOptions select the metadata of pods from the API server.
type podOptions struct {
	labels, uid, owners bool
	claimShares         bool
	kaiShares           bool
	allowlist           []string
	kubeconfig          string
	procfs              string
}

// watchPods watches the node's pods if an option needs their metadata, and configures the
// collector accordingly. The returned function stops the watch and waits for its end.
func (o *options) watchPods(ctx context.Context, config *collector.Config, log *slog.Logger) (stop func(), err error) {
	if !o.needsAPIServer() {
		return func() {}, nil
	}
	if o.pods.labels {
		if config.Labels.PodLabel, err = collector.ParseLabelAllowlist(splitLists(o.pods.allowlist)); err != nil {
			return nil, fmt.Errorf("--kubernetes-pod-label-allowlist-regex: %w", err)
		}
	}
	server, err := o.pods.apiServer()
	if err != nil && !o.strict {
		log.Warn("continuing without the metadata of pods", "err", err)
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w (--strict)", err)
	}
	w, err := kube.New(server, kube.Options{Node: o.node, Owners: o.pods.owners, Fractions: o.pods.kaiShares, Label: config.Labels.PodLabel, Log: log})
	if err != nil {
		return nil, err
	}
	config.Pods, config.Owners, config.Labels.PodUID = w, o.pods.owners, o.pods.uid
	if o.pods.kaiShares {
		config.Fractions = w.Fraction
	}
	if config.Attribution == collector.ByProcess {
		config.PodOf = podOfProcess(o.pods.procfs, w)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	waitForPods(ctx, w, log)
	return func() { cancel(); <-done }, nil
}

// needsAPIServer reports whether an option needs the metadata of pods.
func (o *options) needsAPIServer() bool {
	return o.pods.labels || o.pods.uid || o.pods.owners || o.pods.kaiShares || o.attribution == string(collector.ByProcess)
}

// checkPodMetadata checks that the API server lists the node's pods.
func (o *options) checkPodMetadata(ctx context.Context) finding {
	f := finding{check: "pod metadata"}
	server, err := o.pods.apiServer()
	if err == nil {
		var n int
		n, err = kube.CountPods(ctx, server, o.node)
		f.detail = fmt.Sprintf("%d pods on the node", n)
	}
	f.err = err
	return f
}

// podOfProcess returns a function that finds the pod of a process by the pod UID in the
// name of its cgroup. A process that has exited or is not visible has no pod.
func podOfProcess(procfs string, w *kube.Watcher) func(pid int) (namespace, name string, ok bool) {
	return func(pid int) (namespace, name string, ok bool) {
		uid, err := podmap.PodUID(procfs, pid)
		if err != nil || uid == "" {
			return "", "", false // plimsoll_exporter_unattributed_processes counts the process
		}
		return w.PodByUID(uid)
	}
}

// apiServer returns the configuration of the API server.
func (o podOptions) apiServer() (*rest.Config, error) {
	if o.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
		if err != nil {
			err = fmt.Errorf("--kubeconfig: %w", err)
		}
		return config, err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		err = fmt.Errorf("connect to the API server: %w; mount the service account token (automountServiceAccountToken: true) or set --kubeconfig", err)
	}
	return config, err
}

// firstListTimeout limits the wait for the first list of the API server, so that the first
// collection, which is the only one with --once, has its content.
const firstListTimeout = 5 * time.Second

// waitForPods waits for the first list of pods.
func waitForPods(ctx context.Context, w *kube.Watcher, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, firstListTimeout)
	defer cancel()
	if !w.WaitForList(ctx) {
		log.Warn("the API server has not listed the node's pods yet; continuing without their metadata", "metric", "plimsoll_exporter_api_server_reachable")
	}
}

// splitLists splits the values of a flag that accepts comma-separated lists and can be
// repeated.
func splitLists(values []string) []string { return strings.Split(strings.Join(values, ","), ",") }

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

// podOptions are what is asked of the API server.
type podOptions struct {
	labels, uid, owners bool
	allowed             []string
	kubeconfig          string
	procfs              string
}

// watchPods follows the node's pods through the API server, where an option asks for
// it; the returned function waits until that has ended, and ends it.
func (o *options) watchPods(ctx context.Context, config *collector.Config, log *slog.Logger) (end func(), err error) {
	byProcess := config.Attribution == collector.ByProcess
	if !o.asksForPods() {
		return func() {}, nil
	}
	if o.pods.labels {
		if config.Labels.PodLabel, err = collector.ParseLabelAllowlist(strings.Split(strings.Join(o.pods.allowed, ","), ",")); err != nil {
			return nil, fmt.Errorf("--kubernetes-pod-label-allowlist-regex: %w", err)
		}
	}
	server, err := o.pods.server()
	if err != nil && !o.strict {
		log.Warn("going on without the pods' metadata", "err", err)
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w (--strict)", err)
	}
	w, err := kube.New(server, kube.Options{Node: o.node, Owners: o.pods.owners, Log: log})
	if err != nil {
		return nil, err
	}
	config.Pods, config.Owners, config.Labels.PodUID = w, o.pods.owners, o.pods.uid
	if byProcess {
		config.PodOf = podOf(o.pods.procfs, w)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	o.listed(ctx, w, log)
	return func() { cancel(); <-done }, nil
}

// asksForPods tells whether an option needs the API server.
func (o *options) asksForPods() bool {
	return o.pods.labels || o.pods.uid || o.pods.owners || o.attribution == string(collector.ByProcess)
}

// metadata asks the API server for the node's pods.
func (o *options) metadata(ctx context.Context) finding {
	f := finding{what: "the pods' metadata"}
	server, err := o.pods.server()
	if err == nil {
		var n int
		n, err = kube.Count(ctx, server, o.node)
		f.more = fmt.Sprintf("%d pods on the node", n)
	}
	f.err = err
	return f
}

// podOf a process: by its cgroup, and the UID that this names.
func podOf(procfs string, w *kube.Watcher) func(pid int) (namespace, name string, ok bool) {
	return func(pid int) (namespace, name string, ok bool) {
		// A process that is gone, or is not seen, is counted as one without a pod.
		uid, err := podmap.PodUID(procfs, pid)
		if err != nil || uid == "" {
			return "", "", false
		}
		return w.Named(uid)
	}
}

// server that is asked.
func (o podOptions) server() (*rest.Config, error) {
	if o.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
		if err != nil {
			err = fmt.Errorf("--kubeconfig: %w", err)
		}
		return config, err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		err = fmt.Errorf("reach the API server: %w; does the pod mount its service account's token (automountServiceAccountToken), or set --kubeconfig", err)
	}
	return config, err
}

// listed waits a little for the first list, so that a first collection, which may be
// the only one, knows the pods.
func (o *options) listed(ctx context.Context, w *kube.Watcher, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if !w.WaitForList(ctx) {
		log.Warn("the API server has not told of the node's pods yet; going on without", "api", "plimsoll_exporter_api_server_reachable")
	}
}

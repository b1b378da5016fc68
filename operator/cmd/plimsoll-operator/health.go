package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// cacheWait is shorter than the kubelet's default timeout of a probe, one second.
const cacheWait = 500 * time.Millisecond

// errNotSynced is the error of a replica that has not yet read the objects of the hub.
var errNotSynced = errors.New("the caches are not synced with the API server")

// syncWaiter is the part of a cache that the readiness check uses.
type syncWaiter interface {
	WaitForCacheSync(ctx context.Context) bool
}

// cachesAreSynced returns the readiness check: a replica is ready when its caches hold
// the objects of the hub.
func cachesAreSynced(caches syncWaiter) healthz.Checker {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), cacheWait)
		defer cancel()
		if !caches.WaitForCacheSync(ctx) {
			return errNotSynced
		}
		return nil
	}
}

// maxReconcile is the time after which a reconciliation counts as stuck. The queries of a
// reconciliation end within timing.MaxRound, whatever periods and timeouts users set. Otherwise a
// source that does not respond would restart the operator, and so every leader after it.
const maxReconcile = 5 * time.Minute

// loopsTurn returns the liveness check: no controller has worked on one object for longer
// than maxReconcile. A restart loses no state and takes over within seconds.
func loopsTurn(gatherer prometheus.Gatherer) healthz.Checker {
	return func(*http.Request) error {
		families, err := gatherer.Gather()
		if err != nil {
			return err
		}
		for _, family := range families {
			if !strings.HasSuffix(family.GetName(), metrics.LongestRunningProcessorKey) {
				continue
			}
			for _, m := range family.GetMetric() {
				if seconds := m.GetGauge().GetValue(); seconds > maxReconcile.Seconds() {
					return fmt.Errorf("a controller has worked on one object for %.0f s: %s", seconds, m.GetLabel())
				}
			}
		}
		return nil
	}
}

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
)

// fakeCaches are synced or wait for ever.
type fakeCaches bool

func (synced fakeCaches) WaitForCacheSync(ctx context.Context) bool {
	if !synced {
		<-ctx.Done()
	}
	return bool(synced)
}

func TestReadinessWaitsForCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for synced, want := range map[fakeCaches]error{true: nil, false: errNotSynced} {
			if err := cachesAreSynced(synced)(httptest.NewRequest(http.MethodGet, "/readyz", nil)); !errors.Is(err, want) {
				t.Errorf("synced %v: %v, want %v", synced, err, want)
			}
		}
	})
}

func TestLivenessDetectsStuckLoops(t *testing.T) {
	registry := prometheus.NewRegistry()
	running := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_longest_running_processor_seconds", Help: "Seconds of the longest run."}, []string{"controller"})
	registry.MustRegister(running)
	check := loopsTurn(registry)
	for seconds, want := range map[float64]string{0: "", 299: "", 301: `301 s`} {
		running.WithLabelValues("workload").Set(seconds)
		err := check(nil)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("after %.0f s: %v", seconds, err)
		}
	}
}

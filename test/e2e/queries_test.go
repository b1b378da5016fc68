//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/dashboards"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// All queries of all dashboards return series on a fleet with a running job.
func TestDashboardQueriesReturnSeries(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	submit(ctx, t, fleet.Job{Name: "seen", Model: fleet.H100, GPUs: 1})
	awaitRunning(ctx, t, "seen")
	queries, err := dashboards.Queries()
	if err != nil {
		t.Fatal(err)
	}
	if len(queries) == 0 {
		t.Fatal("there are no dashboards")
	}
	for _, q := range queries {
		t.Run(q.Dashboard+"/"+q.Panel, func(t *testing.T) { awaitSeries(testContext(t, 20*time.Second), t, q.Expr) })
	}
}

// All recording rules have series on a fleet with a running job.
func TestRecordingRulesReturnSeries(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	submit(ctx, t, fleet.Job{Name: "recorded", Model: fleet.H100, GPUs: 1})
	awaitRunning(ctx, t, "recorded")
	root, err := fleet.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "rules", "recording.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Record string `json:"record"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				n++
				awaitSeries(ctx, t, rule.Record)
			}
		}
	}
	if n == 0 {
		t.Fatal("there are no recording rules")
	}
}

// awaitSeries waits until the expression returns at least one series.
func awaitSeries(ctx context.Context, t *testing.T, expr string) {
	t.Helper()
	await(ctx, t, "series of "+expr, func(ctx context.Context) error {
		samples, err := fleet.Query(ctx, lab.Thanos, expr)
		if err == nil && len(samples) == 0 {
			err = errors.New("the result is empty")
		}
		return err
	})
}

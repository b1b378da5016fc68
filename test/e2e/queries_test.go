//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/dashboards"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// Every query of every panel answers something on a fleet with a job on it.
func TestEveryDashboardQueryAnswers(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	submit(ctx, t, fleet.Job{Name: "seen", Model: fleet.H100, GPUs: 1})
	runs(ctx, t, "seen")
	queries, err := dashboards.Queries()
	if err != nil {
		t.Fatal(err)
	}
	if len(queries) == 0 {
		t.Fatal("there are no dashboards")
	}
	for _, q := range queries {
		t.Run(q.Dashboard+"/"+q.Panel, func(t *testing.T) { answers(testContext(t, 20*time.Second), t, q.Expr) })
	}
}

// Every recording rule has series on a fleet with a job on it.
func TestEveryRecordingRuleAnswers(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	submit(ctx, t, fleet.Job{Name: "recorded", Model: fleet.H100, GPUs: 1})
	runs(ctx, t, "recorded")
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
				answers(ctx, t, rule.Record)
			}
		}
	}
	if n == 0 {
		t.Fatal("there are no recording rules")
	}
}

// answers fails unless the expression has at least one series before ctx ends.
func answers(ctx context.Context, t *testing.T, expr string) {
	t.Helper()
	await(ctx, t, "an answer to "+expr, func(ctx context.Context) error {
		samples, err := fleet.Query(ctx, lab.Thanos, expr)
		if err == nil && len(samples) == 0 {
			err = fmt.Errorf("the answer is empty")
		}
		return err
	})
}

//go:build e2e && long

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"
)

func TestPolicyReportsPositionOfPromQLError(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	query, err := lab.Hub.Kubectl(ctx, "", "get", "scoringpolicy", "fleet", "-o", "jsonpath={.spec.scores[0].query}")
	if err != nil {
		t.Fatal(err)
	}
	good, err := json.Marshal(query)
	if err != nil {
		t.Fatal(err)
	}
	setQuery := func(ctx context.Context, value string) {
		patch(ctx, t, "scoringpolicy/fleet", "json", `[{"op":"replace","path":"/spec/scores/0/query","value":`+value+`}]`)
	}
	t.Cleanup(func() { cleanUp(t, func(ctx context.Context) error { setQuery(ctx, string(good)); return nil }) })
	setQuery(ctx, `"sum by (cluster) (up"`)
	awaitCondition(ctx, t, "scoringpolicy/fleet", conditionQueriesValid, "False", messageQueryPosition)
	setQuery(ctx, string(good))
	awaitCondition(ctx, t, "scoringpolicy/fleet", conditionReady, "True")
}

func TestGateReportsMissingPlacement(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	patch(ctx, t, "placementgate/gpu", "merge", `{"spec":{"placementRef":{"name":"nowhere"}}}`)
	awaitCondition(ctx, t, "admissioncheck/plimsoll", conditionActive, "False", "nowhere")
	patch(ctx, t, "placementgate/gpu", "merge", `{"spec":{"placementRef":{"name":"gpu"}}}`)
	awaitCondition(ctx, t, "admissioncheck/plimsoll", conditionActive, "True")
}

func TestSourceReportsThanosOutage(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	if err := lab.Programs().End("thanos-query", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "metricssource/thanos", conditionReachable, "False")
	if err := lab.Programs().Restart(ctx, "thanos-query"); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "metricssource/thanos", conditionReachable, "True")
	awaitCondition(ctx, t, "scoringpolicy/fleet", conditionReady, "True")
}

// One of Thanos's three sidecars is down. The score of its cluster becomes -100. The
// scores of the other clusters still follow their metrics.
func TestOutageOfOneSidecarAffectsOnlyItsCluster(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	total := func(ctx context.Context, cluster string) int32 {
		scores, err := lab.Scores(ctx, "fleet", cluster)
		if err != nil {
			t.Fatal(err)
		}
		return scores["total"]
	}
	const sidecar = "cluster3-thanos-sidecar"
	if err := lab.Programs().End(sidecar, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.SetLoad("cluster1", 0); err != nil {
			t.Error(err)
		}
	})
	before := total(ctx, "cluster1")
	if err := lab.SetLoad("cluster1", 0.99); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "cluster1's score to follow its load", func(ctx context.Context) error {
		if now := total(ctx, "cluster1"); now > before-25 {
			return fmt.Errorf("%d, was %d", now, before)
		}
		return nil
	})
	await(ctx, t, "cluster3's score to become the worst", func(ctx context.Context) error {
		if now := total(ctx, "cluster3"); now != -100 {
			return fmt.Errorf("it is %d", now)
		}
		return nil
	})
	if now := total(ctx, "cluster2"); now < 0 {
		t.Errorf("the score of cluster2 is %d, although its sidecar is up", now)
	}
	if err := lab.Programs().Restart(ctx, sidecar); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "cluster3's score to recover", func(ctx context.Context) error {
		if now := total(ctx, "cluster3"); now < 0 {
			return fmt.Errorf("it is %d", now)
		}
		return nil
	})
}

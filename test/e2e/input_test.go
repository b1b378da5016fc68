//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// condition of an object, as "Status: message".
func condition(ctx context.Context, object, kind string) (string, error) {
	return lab.Hub.Kubectl(ctx, "", "get", object, "-o",
		fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].status}: {.status.conditions[?(@.type==%q)].message}`, kind, kind))
}

func awaitCondition(ctx context.Context, t *testing.T, object, kind, status string, words ...string) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("%s of %s to be %s with %q", kind, object, status, words), func(ctx context.Context) error {
		got, err := condition(ctx, object, kind)
		if err != nil {
			return err
		}
		for _, word := range append(words, status+": ") {
			if !strings.Contains(got, word) {
				return fmt.Errorf("it is %q", got)
			}
		}
		return nil
	})
}

func patch(ctx context.Context, t *testing.T, object, kind, body string) {
	t.Helper()
	if _, err := lab.Hub.Kubectl(ctx, "", "patch", object, "--type="+kind, "-p", body); err != nil {
		t.Fatal(err)
	}
}

func TestPolicyWithAPromQLErrorSaysWhere(t *testing.T) {
	ctx := testContext(t, time.Minute)
	query, err := lab.Hub.Kubectl(ctx, "", "get", "scoringpolicy", "fleet", "-o", "jsonpath={.spec.scores[0].query}")
	if err != nil {
		t.Fatal(err)
	}
	good, err := json.Marshal(query)
	if err != nil {
		t.Fatal(err)
	}
	patch(ctx, t, "scoringpolicy/fleet", "json", `[{"op":"replace","path":"/spec/scores/0/query","value":"sum by (cluster) (up"}]`)
	awaitCondition(ctx, t, "scoringpolicy/fleet", "QueriesValid", "False", "1:")
	patch(ctx, t, "scoringpolicy/fleet", "json", `[{"op":"replace","path":"/spec/scores/0/query","value":`+string(good)+`}]`)
	awaitCondition(ctx, t, "scoringpolicy/fleet", "Ready", "True")
}

func TestGateWithAnAbsentPlacementSaysWhich(t *testing.T) {
	ctx := testContext(t, time.Minute)
	patch(ctx, t, "placementgate/gpu", "merge", `{"spec":{"placementRef":{"name":"nowhere"}}}`)
	awaitCondition(ctx, t, "admissioncheck/plimsoll", "Active", "False", "nowhere")
	patch(ctx, t, "placementgate/gpu", "merge", `{"spec":{"placementRef":{"name":"gpu"}}}`)
	awaitCondition(ctx, t, "admissioncheck/plimsoll", "Active", "True")
}

func TestThanosDownIsSaidAndRecovers(t *testing.T) {
	ctx := testContext(t, 2*time.Minute)
	if err := lab.Programs().End("thanos-query", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "metricssource/thanos", "Reachable", "False")
	if err := lab.Programs().Restart(ctx, "thanos-query"); err != nil {
		t.Fatal(err)
	}
	awaitCondition(ctx, t, "metricssource/thanos", "Reachable", "True")
	awaitCondition(ctx, t, "scoringpolicy/fleet", "Ready", "True")
}

// stripServerFields leaves what a user would have written.
func stripServerFields(t *testing.T, object string) string {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		t.Fatal(err)
	}
	delete(o, "status")
	name := o["metadata"].(map[string]any)["name"]
	o["metadata"] = map[string]any{"name": name}
	out, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// One store of Thanos's three is gone: its cluster becomes unknown and then worst,
// while the scores of the others go on following their metrics.
func TestOneSidecarDownTheOthersKeepMoving(t *testing.T) {
	ctx := testContext(t, 3*time.Minute)
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
		t.Errorf("cluster2, which answers, has %d", now)
	}
	if err := lab.Programs().Restart(ctx, sidecar); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "cluster3's score to come back", func(ctx context.Context) error {
		if now := total(ctx, "cluster3"); now < 0 {
			return fmt.Errorf("it is %d", now)
		}
		return nil
	})
}

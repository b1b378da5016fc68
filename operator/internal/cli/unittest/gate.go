package unittest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/cli/ask"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/manifest"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/whatif"
)

// expectedJob is a job with the decision that the gate must make. Fields that are empty may have any value.
type expectedJob struct {
	// Job is the path of a manifest, or the manifest itself.
	Job     json.RawMessage `json:"job"`
	Outcome whatif.Outcome  `json:"outcome"`
	Cluster string          `json:"cluster"`
	Reason  string          `json:"reason"`
	// Why is a part of the message.
	Why string `json:"why"`
}

// decide returns the decisions that differ.
func (t *unitTest) decide(ctx context.Context, a *command.App, suite *testSuite, series testSeries) (differences []string, err error) {
	source := query.QuerierFunc(series.query)
	scores := map[string]map[string]gate.Score{}
	if suite.policy != nil {
		if err := ask.AddScores(ctx, scores, suite.policy, source, suite.label, t.Clusters, t.now()); err != nil {
			return nil, err
		}
	}
	q := whatif.Question{Gate: suite.gate, Source: query.SourceInfo{ClusterLabel: suite.label, Match: string(v1alpha1.MatchName)}, Querier: source, Now: t.now}
	for _, name := range t.Clusters {
		q.Clusters = append(q.Clusters, gatestate.Cluster{Name: name, Scores: scores[name]})
	}
	fleet, err := whatif.New(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range t.Jobs {
		manifest, err := t.Jobs[i].read(a, suite.file)
		if err != nil {
			return nil, fmt.Errorf("jobs[%d]: %w", i, err)
		}
		wl, err := whatif.WorkloadOf(manifest, "default")
		if err != nil {
			return nil, fmt.Errorf("jobs[%d]: %w", i, err)
		}
		answer, err := fleet.Ask(ctx, wl)
		if err != nil {
			return nil, fmt.Errorf("jobs[%d]: %w", i, err)
		}
		differences = append(differences, t.Jobs[i].compare(ask.ReportOf([]*whatif.Answer{answer}).Jobs[0])...)
	}
	return differences, nil
}

// read returns the manifest of the job.
func (j *expectedJob) read(a *command.App, file string) (*unstructured.Unstructured, error) {
	var path string
	if json.Unmarshal(j.Job, &path) != nil {
		object := &unstructured.Unstructured{}
		return object, object.UnmarshalJSON(j.Job)
	}
	m, err := manifest.Read(a, []string{relativeTo(file, path)})
	if err != nil {
		return nil, err
	}
	if len(m.Others) != 1 {
		return nil, fmt.Errorf("%s: must contain one job, got %d objects", path, len(m.Others))
	}
	return m.Others[0], nil
}

// compare returns one message per value that differs.
func (j *expectedJob) compare(got ask.Job) (differences []string) {
	differ := func(field, want, value string) {
		differences = append(differences, fmt.Sprintf("%s %s: want %s, got %s (%s)", got.Job, field, want, value, got.Why))
	}
	if j.Outcome != got.Outcome {
		differ("outcome", string(j.Outcome), string(got.Outcome))
	}
	if j.Cluster != "" && j.Cluster != got.Cluster {
		differ("cluster", j.Cluster, orNone(got.Cluster))
	}
	if j.Reason != "" && j.Reason != got.Reason {
		differ("reason", j.Reason, orNone(got.Reason))
	}
	if !strings.Contains(got.Why, j.Why) {
		differ("why", fmt.Sprintf("%q", j.Why), "another message")
	}
	return differences
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

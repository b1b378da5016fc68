package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/common/config"
	"github.com/spf13/pflag"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/round"
)

// asking are the flags that say which policy is tried, where it asks, and for which
// clusters.
type asking struct {
	file, url, label string
	clusters         []string
	timeout          time.Duration
}

func (q *asking) add(flags *pflag.FlagSet, timeout time.Duration) {
	flags.StringVarP(&q.file, "filename", "f", "", "file with one ScoringPolicy, or - for standard input")
	flags.StringVar(&q.url, "prometheus", "", "URL of Prometheus or Thanos Query")
	flags.StringVar(&q.label, "cluster-label", "cluster", "label by which series name clusters")
	flags.StringSliceVar(&q.clusters, "clusters", nil, "names of clusters, instead of the hub's")
	flags.DurationVar(&q.timeout, "timeout", timeout, "how long one question may take")
}

func (q *asking) check() error {
	if q.file == "" || q.url == "" {
		return usageError{errors.New("name a policy's file with -f and a Prometheus with --prometheus")}
	}
	return nil
}

// trial is a policy and where it asks.
type trial struct {
	policy *v1alpha1.ScoringPolicy
	source *query.Client
	info   query.SourceInfo
}

func (q *asking) open(a *app) (*trial, error) {
	content, err := a.read(q.file)
	if err != nil {
		return nil, err
	}
	policy, err := policyIn(q.file, content)
	if err != nil {
		return nil, err
	}
	source, err := q.client()
	return &trial{policy: policy, source: source, info: query.SourceInfo{ClusterLabel: q.label}}, err
}

func (q *asking) client() (*query.Client, error) {
	return query.New(query.Config{
		Name: "kubectl", URL: q.url, ClusterLabel: q.label, HTTP: config.DefaultHTTPClientConfig, Timeout: q.timeout,
		MaxConcurrency: 4, QueriesPerSecond: 20, MaxResponseBytes: 64 << 20, MaxSeries: 100000,
	})
}

// policyIn a file: exactly one, with scores.
func policyIn(file string, content []byte) (*v1alpha1.ScoringPolicy, error) {
	policy := &v1alpha1.ScoringPolicy{}
	if err := yaml.UnmarshalStrict(content, policy); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if policy.Kind != "ScoringPolicy" || len(policy.Spec.Scores) == 0 {
		return nil, fmt.Errorf("%s: must hold one ScoringPolicy with scores", file)
	}
	return policy, nil
}

// fleet of the command line, of the hub, or of what the answers name.
func (q *asking) fleet(ctx context.Context, a *app, t *trial, answered func() ([]string, error)) (fleet []round.Cluster, fromAnswers bool, err error) {
	if len(q.clusters) > 0 {
		return named(q.clusters), false, nil
	}
	list := &clusterv1.ManagedClusterList{}
	c, _, err := a.connect()
	if err == nil {
		err = reading("ManagedClusters", c.List(ctx, list))
	}
	if err == nil {
		fleet, err = round.Fleet(list.Items, t.policy.Spec.ClusterSelector, t.info)
		return fleet, false, err
	}
	_, _ = fmt.Fprintf(a.ErrOut, "clusters are those that the answers name: %v\n", err)
	names, err := answered()
	return named(names), true, err
}

func named(names []string) []round.Cluster {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	var fleet []round.Cluster
	for _, n := range slices.Sorted(maps.Keys(set)) {
		fleet = append(fleet, round.Cluster{Name: n, Key: n})
	}
	return fleet
}

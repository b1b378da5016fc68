// Package evaluation opens a ScoringPolicy from files, with its source and clusters, and shows the
// result of a round as rows.
package evaluation

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/manifest"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/dial"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// FlagsHelp describes Flags in the help of a command.
const FlagsHelp = `The files must contain one ScoringPolicy. They can also contain the MetricsSource that the
policy refers to, and the Secrets of that MetricsSource; then queries use the same settings
as the operator. --prometheus queries another URL, such as a forwarded port, and the flags
for credentials replace the Secrets. Secrets are never printed. Without the MetricsSource in the
files, that of the hub applies.

` + prometheus.Help + `

The clusters are those of --clusters. Without --clusters, they are the clusters of the hub
that the policy selects. Without a hub, they are the clusters in the query results.`

// Flags select a policy, the source to query and the clusters to score.
type Flags struct {
	Files      []string
	Clusters   []string
	Connection prometheus.Flags
}

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.Files, "filename", "f", nil, "files or folders with a ScoringPolicy, or - for standard input")
	flags.StringSliceVar(&f.Clusters, "clusters", nil, "names of clusters to score, instead of those of the hub")
	flags.DurationVar(&f.Connection.Timeout, "timeout", f.Connection.Timeout, "timeout of one query; 0 uses the limits of the source")
	f.Connection.Add(cmd)
}

// Check returns a usage error if flags are missing or contradict each other.
func (f *Flags) Check() error {
	if len(f.Files) == 0 {
		return command.Usagef("set the file of a policy with -f")
	}
	return f.Connection.Check()
}

// Setup is a policy and the source that its queries go to.
type Setup struct {
	Policy *v1alpha1.ScoringPolicy // without $cluster_label in its queries
	// Compiled is the spec of the policy.
	Compiled *score.Policy
	Source   *prometheus.Source
}

// Read reads the files.
func (f *Flags) Read(a *command.App) (*manifest.Manifests, error) { return manifest.Read(a, f.Files) }

// Open connects to the source of the policy in the files. The caller must close the client of
// the source.
func (f *Flags) Open(ctx context.Context, a *command.App, m *manifest.Manifests) (*Setup, error) {
	policy, err := m.OnlyPolicy(f.Files...)
	if err != nil {
		return nil, err
	}
	source, err := f.ConnectTo(ctx, a, m, policy.Spec.SourceRef.Name)
	if err != nil {
		return nil, err
	}
	spec, compiled, err := round.Compile(&policy.Spec, source.Info.ClusterLabel)
	if err != nil {
		source.Client.Close()
		return nil, err
	}
	policy.Spec = *spec
	return &Setup{Policy: policy, Compiled: compiled, Source: source}, nil
}

// ConnectTo connects to a MetricsSource of the files or of the hub, or to --prometheus. The caller must close the client of the source.
func (f *Flags) ConnectTo(ctx context.Context, a *command.App, m *manifest.Manifests, name string) (*prometheus.Source, error) {
	src := m.Sources[name]
	if src == nil && f.Connection.NeedsMapping() {
		var err error
		if src, err = f.Connection.Find(ctx, a, name); err != nil {
			_, _ = fmt.Fprintf(a.ErrOut, "series have the default clusterMapping, because that of MetricsSource %s can't be read: %v\n", name, err)
		}
	}
	return f.Connection.Connect(ctx, a, src, m.Secrets)
}

// SelectClusters returns the clusters of the command line, of the hub, or of the query
// results, in this order. listResults returns the names in the query results; fromResults
// is true if they were used. If the source identifies clusters by another property than
// their name, the hub is needed for the clusters of the command line too.
func (f *Flags) SelectClusters(ctx context.Context, a *command.App, e *Setup, listResults func() ([]string, error)) (clusters *clustermap.Mapping, fromResults bool, err error) {
	info := e.Source.Info
	if len(f.Clusters) > 0 && info.Match == string(v1alpha1.MatchName) {
		return clustermap.FromNames(info.ClusterLabel, f.Clusters), false, nil
	}
	managed, err := hubclient.ListManagedClusters(ctx, a)
	switch {
	case err == nil:
		clusters, err = f.filterClusters(managed, e)
		return clusters, false, err
	case len(f.Clusters) > 0:
		return nil, false, fmt.Errorf("can't read %s %q of the clusters: %w", info.Match, info.Key, err)
	case dial.IsPerCluster(e.Source.Spec):
		return nil, false, fmt.Errorf("each cluster has its own endpoint: set the names of the clusters with --clusters: %w", err)
	}
	_, _ = fmt.Fprintf(a.ErrOut, "scoring the clusters in the query results, because the hub can't be read: %v\n", err)
	names, err := listResults()
	if err != nil {
		return nil, false, err
	}
	return clustermap.FromNames(info.ClusterLabel, names), true, err
}

// filterClusters returns the managed clusters of the command line, or those that the
// policy selects.
func (f *Flags) filterClusters(managed []clusterv1.ManagedCluster, e *Setup) (*clustermap.Mapping, error) {
	names := f.Clusters
	if len(names) == 0 {
		var err error
		if names, err = hubstate.SelectNames(managed, e.Policy.Spec.ClusterSelector); err != nil {
			return nil, fmt.Errorf("clusterSelector: %w", err)
		}
	}
	clusters := clustermap.New(managed, e.Source.Info).Select(names)
	if clusters.Len() == 0 {
		return nil, errors.New("no cluster of the hub matches: check clusterSelector, or set other names with --clusters")
	}
	return clusters, nil
}

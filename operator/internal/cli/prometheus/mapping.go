package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/dial"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// AddHubSource adds --source, for commands that compare series with the clusters of the hub.
func (f *Flags) AddHubSource(flags *pflag.FlagSet) {
	flags.StringVar(&f.hubSource, "source", "", "MetricsSource of the hub to query; with --prometheus, only its clusterMapping applies. Needed only if those of the hub differ")
}

// NeedsMapping is false if each cluster has its own endpoint: the client then names the clusters.
func (f *Flags) NeedsMapping() bool {
	return !strings.Contains(f.URL, query.ClusterPlaceholder)
}

// choose returns what applies of a MetricsSource of the hub: with --prometheus, only its clusterMapping.
func (f *Flags) choose(source *v1alpha1.MetricsSource) *v1alpha1.MetricsSource {
	info := dial.SourceInfo(source)
	chosen := &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: source.Name}}
	if f.URL == "" {
		chosen.Spec = *source.Spec.DeepCopy()
	}
	chosen.Spec.ClusterMapping = v1alpha1.ClusterMapping{Label: info.ClusterLabel, Match: v1alpha1.ClusterMatch(info.Match), Key: info.Key}
	return chosen
}

// Choose returns what applies of the MetricsSource of --source or, without the flag, of all
// MetricsSources of the hub. It returns nil if the hub has no MetricsSource. It is an
// error if they differ: the URL of a forwarded port does not show which one it belongs to.
func (f *Flags) Choose(sources []v1alpha1.MetricsSource) (*v1alpha1.MetricsSource, error) {
	var chosen *v1alpha1.MetricsSource
	for i := range sources {
		source := f.choose(&sources[i])
		switch {
		case f.hubSource != "":
			if source.Name == f.hubSource {
				return source, nil
			}
		case chosen == nil:
			chosen = source
		case chosen.Spec.ClusterMapping != source.Spec.ClusterMapping:
			return nil, fmt.Errorf("the MetricsSources %s and %s have different clusterMappings: choose one with --source", chosen.Name, source.Name)
		case chosen.Spec.URL != source.Spec.URL, chosen.Spec.URLTemplate != source.Spec.URLTemplate:
			return nil, fmt.Errorf("the MetricsSources %s and %s have different addresses: choose one with --source", chosen.Name, source.Name)
		}
	}
	if f.hubSource != "" {
		return nil, fmt.Errorf("MetricsSource %s of --source does not exist", f.hubSource)
	}
	return chosen, nil
}

// FleetSource is a source with the clusters that its series name.
type FleetSource struct {
	*Source
	// mapping is nil if the cluster label holds the names of the clusters.
	mapping *clustermap.Mapping
}

// ConnectFleet connects to --prometheus, or to the source that it finds. Its series name clusters as the MetricsSources of the hub
// say. If these can't be read, the cluster label holds the names of the clusters.
func (f *Flags) ConnectFleet(ctx context.Context, a *command.App) (*FleetSource, error) {
	var mapping *v1alpha1.MetricsSource
	if f.NeedsMapping() {
		sources, err := listMetricsSources(ctx, a)
		switch {
		case err == nil:
			if mapping, err = f.Choose(sources); err != nil {
				return nil, err
			}
		case f.hubSource != "":
			return nil, fmt.Errorf("--source: %w", err)
		default:
			_, _ = fmt.Fprintf(a.ErrOut, "clusters have the names in the label %q of the series, because the MetricsSources of the hub can't be read: %v\n", cmp.Or(f.Label, "cluster"), err)
		}
	}
	source, err := f.Connect(ctx, a, mapping, nil)
	if err != nil || source.Info.Match == string(v1alpha1.MatchName) {
		return &FleetSource{Source: source}, err
	}
	managed, err := hubclient.ListManagedClusters(ctx, a)
	if err != nil {
		source.Client.Close()
		return nil, fmt.Errorf("can't read %s %q of the clusters: %w", source.Info.Match, source.Info.Key, err)
	}
	return &FleetSource{Source: source, mapping: clustermap.New(managed, source.Info)}, nil
}

// ByCluster calls add with each sample and the name of its cluster. It leaves out samples that no
// single ManagedCluster has, and warns of them. what are the numbers that come from the samples, as
// a plural.
func (s *FleetSource) ByCluster(a *command.App, what string, samples []query.Sample, add func(cluster string, sample *query.Sample)) {
	label, ambiguous := s.Info.ClusterLabel, map[string][]string{}
	if s.mapping != nil {
		ambiguous = s.mapping.Ambiguous()
	}
	unknown, shared := map[string]bool{}, map[string]bool{}
	for i := range samples {
		value := samples[i].Label(label)
		cluster, ok := value, true
		if s.mapping != nil {
			cluster, ok = s.mapping.Cluster(value)
		}
		switch {
		case ok:
			add(cluster, &samples[i])
		case value == "":
			unknown["no label "+label] = true
		case ambiguous[value] != nil:
			shared[fmt.Sprintf("%s=%q", label, value)] = true
		default:
			unknown[fmt.Sprintf("%s=%q", label, value)] = true
		}
	}
	for _, left := range []struct {
		series map[string]bool
		owner  string
	}{{unknown, "no ManagedCluster"}, {shared, "several ManagedClusters"}} {
		if len(left.series) > 0 {
			_, _ = fmt.Fprintf(a.ErrOut, "warning: %s leave out series of %s: %s\n", what, left.owner, format.Abbreviate(slices.Sorted(maps.Keys(left.series))))
		}
	}
}

// Find returns what applies of a MetricsSource of the hub. It is nil if there is no hub, or if
// the hub has no such MetricsSource.
func (f *Flags) Find(ctx context.Context, a *command.App, name string) (*v1alpha1.MetricsSource, error) {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return nil, nil // preview and backtest work without a hub
	}
	source := &v1alpha1.MetricsSource{}
	found, err := hubstate.Find(ctx, c, client.ObjectKey{Name: name}, source)
	if err != nil || !found {
		return nil, hubclient.Reading("read hub", err)
	}
	return f.choose(source), nil
}

func listMetricsSources(ctx context.Context, a *command.App) ([]v1alpha1.MetricsSource, error) {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return nil, err
	}
	list := &v1alpha1.MetricsSourceList{}
	if err := c.List(ctx, list); err != nil {
		return nil, hubclient.Reading("MetricsSources", err)
	}
	return list.Items, nil
}

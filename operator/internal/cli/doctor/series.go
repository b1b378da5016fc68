package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// neededSeries are the recorded series without which a cluster is never chosen.
var neededSeries = []struct{ series, fix string }{
	{"cluster:plimsoll_sample_timestamp_seconds:min", "load rules/recording-*.yaml into the Prometheus of the cluster, which must also scrape kube-state-metrics; then kubectl plimsoll top"},
	{"cluster_resource:plimsoll_free_devices:sum", "check on the cluster that its nodes are schedulable and have accelerators"},
}

// exporterSeries is a series of each exporter.
const exporterSeries = "plimsoll_exporter_last_collection_timestamp_seconds"

const exporterFix = "check on the cluster that the pods of plimsoll-exporter run, and that its Prometheus scrapes them and sets the external label cluster"

// quotaSeries is what the default quota query of a gate reads. Kueue exports its input only with
// metrics.enableClusterQueueResources.
const quotaSeries = "cluster_queue:kueue_unreserved_quota:max"

const quotaFix = "on each of these clusters, set metrics.enableClusterQueueResources: true in Kueue's configuration, scrape Kueue, and load rules/recording-queues.yaml"

const seriesFix = "kubectl plimsoll doctor --prometheus URL, with the metrics of all clusters"

// seriesCheck checks the series of each ManagedCluster.
type seriesCheck struct {
	*doctor
	source    *prometheus.Source
	mapping   *clustermap.Mapping
	diagnoses []installation.Diagnosis
	// silent are the clusters that are not checked further: their endpoint failed, no series names
	// them, or they have no metrics of the exporter.
	silent map[string]bool
	// metered is true if at least one cluster has metrics of the exporter.
	metered bool
}

// checkSeries checks that the recorded series exist for each ManagedCluster.
func (d *doctor) checkSeries(ctx context.Context) ([]installation.Diagnosis, error) {
	skipped := func(format string, args ...any) []installation.Diagnosis {
		return []installation.Diagnosis{{Result: installation.ResultSkipped, Subject: "series", Message: "not checked" + fmt.Sprintf(format, args...)}}
	}
	if len(d.hub.Managed.Items) == 0 {
		return skipped(": the hub has no ManagedCluster that your user may read"), nil
	}
	var chosen *v1alpha1.MetricsSource
	if d.metrics.NeedsMapping() {
		if slices.Contains(d.hub.Unread, "MetricsSources") {
			return skipped(", because the MetricsSources can't be read, whose clusterMapping says how series name clusters"), nil
		}
		var err error
		if chosen, err = d.metrics.Choose(d.hub.Sources.Items); err != nil {
			diagnoses := skipped(": %v", err)
			diagnoses[0].Fix = "run doctor again with --source NAME"
			return diagnoses, nil
		}
	}
	source, err := d.metrics.Connect(ctx, d.app, chosen, nil)
	if err != nil && d.metrics.URL == "" {
		diagnoses := skipped(": %v", err)
		diagnoses[0].Fix = seriesFix
		return diagnoses, nil
	}
	if err != nil {
		return nil, err
	}
	defer source.Client.Close()
	c := &seriesCheck{doctor: d, source: source, mapping: clustermap.New(d.hub.Managed.Items, source.Info), silent: map[string]bool{}, metered: true}
	c.run(query.ForClusters(ctx, c.mapping.Names()))
	return c.diagnoses, nil
}

// run stops at the first response by which no cluster can be judged.
func (c *seriesCheck) run(ctx context.Context) {
	c.checkMapping()
	for i, needed := range neededSeries {
		missing, ok := c.clustersWithout(ctx, needed.series)
		if !ok {
			return
		}
		if i == 0 && len(missing) > 0 {
			unscraped, ok := c.clustersWithout(ctx, exporterSeries)
			if !ok {
				return
			}
			unscraped = slices.DeleteFunc(unscraped, func(cluster string) bool { return !slices.Contains(missing, cluster) })
			c.metered = len(unscraped) < len(c.hub.Managed.Items)
			for _, cluster := range unscraped {
				c.silent[cluster] = true
				c.add(cluster, "has no metrics of the exporter", exporterFix)
			}
		}
		for _, cluster := range missing {
			if !c.silent[cluster] {
				c.add(cluster, "has no series "+needed.series, needed.fix)
			}
		}
		if len(missing) == 0 {
			c.addFine(needed.series)
		}
	}
	c.checkQuota(ctx)
}

// checkMapping names the clusters that no series can name: they lack the label or ClusterClaim of the
// mapping, or share its value with another cluster. Policies and gates have no data of them.
func (c *seriesCheck) checkMapping() {
	info, ambiguous := c.source.Info, c.mapping.Ambiguous()
	property := fmt.Sprintf("%s %q", info.Match, info.Key)
	fix := fmt.Sprintf("create ClusterClaim %s on the cluster, with the cluster's own value of the series label %s", info.Key, info.ClusterLabel)
	for i := range c.hub.Managed.Items {
		cluster := &c.hub.Managed.Items[i]
		if info.Match == string(v1alpha1.MatchLabel) {
			fix = fmt.Sprintf("kubectl label --overwrite managedcluster %s %s=VALUE, with the cluster's own value of the series label %s", cluster.Name, info.Key, info.ClusterLabel)
		}
		value := clustermap.SeriesValue(cluster, info)
		switch {
		case value == "":
			c.silent[cluster.Name] = true
			c.add(cluster.Name, "has no "+property+", by which MetricsSource "+info.Name+" finds its series", fix)
		case ambiguous[value] != nil:
			others := slices.DeleteFunc(slices.Clone(ambiguous[value]), func(name string) bool { return name == cluster.Name })
			c.silent[cluster.Name] = true
			c.add(cluster.Name, fmt.Sprintf("shares the value %s of %s with %s, so MetricsSource %s finds the series of none of them", value, property, format.Abbreviate(others), info.Name), fix)
		}
	}
}

// checkQuota warns of clusters whose Kueue exports no quota, if a gate reads it by its default
// query.
func (c *seriesCheck) checkQuota(ctx context.Context) {
	readsQuota := false
	for i := range c.hub.Gates.Items {
		readsQuota = readsQuota || c.hub.Gates.Items[i].Spec.Queries.Quota == ""
	}
	if !readsQuota {
		return
	}
	missing, ok := c.clustersWithout(ctx, quotaSeries)
	if workers := c.workers(); len(workers) > 0 { // gates send nothing to other clusters
		missing = slices.DeleteFunc(missing, func(cluster string) bool { return !slices.Contains(workers, cluster) })
	}
	switch {
	case !ok:
	case len(missing) == 0:
		c.addFine(quotaSeries)
	default:
		c.diagnoses = append(c.diagnoses, installation.Warn("quota of workers",
			"Kueue exports no quota of ClusterQueues on "+format.Abbreviate(missing)+": gates send workloads there without regard to it", quotaFix))
	}
}

// add adds a fault for a worker of a gate, and a warning for another cluster: it may have no
// accelerators, as a hub that is a ManagedCluster itself. If no cluster at all has metrics, each one
// has a fault.
func (c *seriesCheck) add(cluster, message, fix string) {
	if c.metered && !slices.Contains(c.workers(), cluster) {
		c.diagnoses = append(c.diagnoses, installation.Warn("cluster "+cluster, message, "none, if it has no accelerators; otherwise "+fix))
		return
	}
	c.diagnoses = append(c.diagnoses, installation.Fault("cluster "+cluster, message, fix))
}

func (c *seriesCheck) addFine(series string) {
	if n := len(c.hub.Managed.Items) - len(c.silent); n > 0 {
		c.diagnoses = append(c.diagnoses, installation.Fine("series", series+" exists for "+format.Plural(n, "cluster")))
	}
}

// clustersWithout returns the ManagedClusters that are not silent and for which the source has no
// such series. It adds a fault for each cluster whose endpoint failed. If the response says
// nothing about a missing series, it adds a fault and returns false.
func (c *seriesCheck) clustersWithout(ctx context.Context, series string) (missing []string, ok bool) {
	result, err := c.source.Client.Query(ctx, fmt.Sprintf("count by (%s) (%s)", c.source.Info.ClusterLabel, series), c.app.Now())
	switch {
	case err != nil && c.metrics.URL == "": // the address that was found may be for pods of the hub only
		c.diagnoses = append(c.diagnoses, installation.Diagnosis{Result: installation.ResultSkipped, Subject: "series", Message: "not checked: " + err.Error(), Fix: seriesFix})
		return nil, false
	case err != nil:
		c.diagnoses = append(c.diagnoses, installation.Fault("Prometheus", err.Error(), "check the address and the credentials of --prometheus"))
		return nil, false
	case result.Partial:
		c.diagnoses = append(c.diagnoses, installation.Fault("Prometheus", "its response is partial, so it does not show which clusters have series: "+result.PartialReason,
			"check its stores or storage nodes, then run doctor again"))
		return nil, false
	}
	for _, cluster := range slices.Sorted(maps.Keys(result.Failed)) {
		if !c.silent[cluster] {
			c.silent[cluster] = true
			c.diagnoses = append(c.diagnoses, installation.Fault("cluster "+cluster, "its endpoint failed: "+result.Failed[cluster], "check the address of --prometheus for this cluster, and its credentials"))
		}
	}
	groups := c.mapping.Group(result.Samples)
	for i, cluster := range groups.Names {
		if groups.Values[i].Outcome == clustermap.Absent && !c.silent[cluster] {
			missing = append(missing, cluster)
		}
	}
	return missing, true
}

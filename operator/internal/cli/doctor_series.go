package cli

import (
	"cmp"
	"context"
	"fmt"
)

// neededSeries are the recorded series without which a cluster is never chosen.
var neededSeries = []struct{ series, fix string }{
	{"cluster:plimsoll_sample_timestamp_seconds:min", "load rules/recording-*.yaml into the Prometheus of the cluster, which must also scrape kube-state-metrics; then kubectl plimsoll top"},
	{"cluster:plimsoll_free_devices:sum", "check on the cluster that its nodes are schedulable and have accelerators"},
}

// exporterSeries is a series of each exporter.
const exporterSeries = "plimsoll_exporter_last_collection_timestamp_seconds"

const exporterFix = "check on the cluster that the pods of plimsoll-exporter run, and that its Prometheus scrapes them and sets the external label cluster"

// checkSeries checks that the recorded series exist for each ManagedCluster.
func (d *doctor) checkSeries(ctx context.Context) ([]diagnosis, error) {
	if d.metrics.url == "" {
		return []diagnosis{{Result: resultSkipped, Subject: "series", Message: "set --prometheus to check them"}}, nil
	}
	source, err := d.metrics.connectSource(d.app, nil, nil)
	if err != nil {
		return nil, err
	}
	var diagnoses []diagnosis
	silent := map[string]bool{} // clusters without metrics of the exporter
	for i, needed := range neededSeries {
		missing, err := d.clustersWithout(ctx, source, needed.series)
		if err != nil {
			return append(diagnoses, fault("Prometheus", err.Error(), "check the address and the credentials of --prometheus")), nil
		}
		if i == 0 && len(missing) > 0 {
			unscraped, err := d.clustersWithout(ctx, source, exporterSeries)
			if err != nil {
				return append(diagnoses, fault("Prometheus", err.Error(), "check the address and the credentials of --prometheus")), nil
			}
			for _, cluster := range unscraped {
				silent[cluster] = true
				diagnoses = append(diagnoses, fault("cluster "+cluster, "has no metrics of the exporter", exporterFix))
			}
		}
		for _, cluster := range missing {
			if !silent[cluster] {
				diagnoses = append(diagnoses, fault("cluster "+cluster, "has no series "+needed.series, needed.fix))
			}
		}
		if len(missing) == 0 {
			diagnoses = append(diagnoses, fine("series", needed.series+" exists for "+countOf(len(d.hub.managed.Items), "cluster")))
		}
	}
	return diagnoses, nil
}

// clustersWithout returns the ManagedClusters for which the source has no such series.
func (d *doctor) clustersWithout(ctx context.Context, source *metricsSource, series string) ([]string, error) {
	label := cmp.Or(source.spec.ClusterMapping.Label, "cluster")
	result, err := source.client.Query(ctx, fmt.Sprintf("count by (%s) (%s)", label, series), d.now())
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, sample := range result.Samples {
		found[sample.Labels[label]] = true
	}
	var missing []string
	for _, cluster := range d.hub.managed.Items {
		if !found[cluster.Name] {
			missing = append(missing, cluster.Name)
		}
	}
	return missing, nil
}

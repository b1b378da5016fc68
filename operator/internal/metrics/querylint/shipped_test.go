package querylint

import "testing"

func TestCheckName(t *testing.T) {
	runCases(t, Options{ClusterLabel: "cluster"}, []checkCase{
		{name: "misspelt operation", expr: `sum by (cluster) (cluster:plimsoll_free_devices:summ)`, want: []string{"1:19 unknown-name: the shipped rules record no cluster:plimsoll_free_devices:summ: did you mean cluster_resource:plimsoll_free_devices:sum? If your own rules record it, write # lint:ignore unknown-name"}},
		{name: "misspelt metric", expr: `sum by (cluster) (cluster_resource:plimsoll_free_device:sum)`, want: []string{"1:19 unknown-name: the shipped rules record no cluster_resource:plimsoll_free_device:sum: did you mean cluster_resource:plimsoll_free_devices:sum?"}},
		{name: "misspelt metric of Kueue", expr: `sum by (cluster) (cluster_queue:kueue_unreserved_quotas:max{cluster_queue="a"})`, want: []string{"1:19 unknown-name: "}},
		{name: "another level, by a label that it lacks", expr: `sum by (cluster) (cluster:plimsoll_xid_events:increase1d{class="79"})`, want: []string{"1:19 unknown-name: the shipped rules record no cluster:plimsoll_xid_events:increase1d: did you mean cluster_severity:plimsoll_xid_events:increase1d?"}},
		{name: "another level of own rules", expr: `cluster:plimsoll_free_devices:sum`},
		{name: "another level of own rules, by their label", expr: `cluster_rack:plimsoll_free_devices:sum{rack="a"}`},
		{name: "another operation of own rules", expr: `cluster_model:plimsoll_temperature_celsius:min{model="a"}`},
		{name: "another time of own rules", expr: `cluster_severity:plimsoll_xid_events:increase7d{severity="critical"}`},
		{name: "another metric of own rules", expr: `cluster:plimsoll_spare_nodes:sum`},
		{name: "own rules of Kubernetes", expr: `cluster:kube_allocatable:sum`},
		{name: "misspelt label", expr: `sum by (cluster) (cluster_resource_model:plimsoll_free_devices:sum{modell=~".*H100.*"})`, want: []string{"1:19 unknown-name: cluster_resource_model:plimsoll_free_devices:sum has no label modell: did you mean model?"}},
		{name: "label that a server adds", expr: `sum by (cluster) (cluster_resource_model:plimsoll_free_devices:sum{region="eu"})`},
		{name: "resource by its name in kube-state-metrics", expr: `sum by (cluster) (cluster_resource:plimsoll_free_devices:sum{resource="nvidia_com_gpu"})`, want: []string{`1:19 unknown-name: resource="nvidia_com_gpu" matches no series: resources have their names of Kubernetes, such as nvidia.com/gpu`}},
		{name: "resource by its name in kube-state-metrics where it has that", expr: `sum by (cluster) (node_resource_state:kube_devices:sum{resource="nvidia_com_gpu"})`},
	})
	runCases(t, Options{ClusterLabel: "clusters"}, []checkCase{
		{name: "similar label of clusters", expr: `sum by (clusters) (cluster_resource:plimsoll_free_devices:sum{clusters!="a"})`},
	})
}

package querylint

import (
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

type checkCase struct {
	name, expr string
	// want are the rules and the beginning of the messages: "1:5 rule: message".
	want []string
}

func runCases(t *testing.T, options Options, cases []checkCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			e, problems := promql.Parse(tc.expr)
			if problems != nil {
				t.Fatal(promql.Strings(problems))
			}
			found := Check(e, tc.expr, options)
			var got []string
			for _, f := range found {
				got = append(got, f.Pos.String()+" "+f.Rule+": "+f.Message)
			}
			if len(got) != len(tc.want) {
				t.Fatalf("%s\n got %q\nwant %q", tc.expr, got, tc.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tc.want[i]) {
					t.Errorf("%s\n got %q\nwant %q", tc.expr, got[i], tc.want[i])
				}
			}
		})
	}
}

func TestCheckNumber(t *testing.T) {
	runCases(t, Options{ClusterLabel: "cluster"}, []checkCase{
		{name: "aggregated", expr: `sum by (cluster) (plimsoll_node_free_devices)`},
		{name: "recorded by cluster", expr: `cluster:plimsoll_free_devices:sum`},
		{name: "recorded by cluster and a fixed label", expr: `cluster_model:plimsoll_free_devices:sum{model="H100"}`},
		{name: "recorded by a fixed label with an underscore", expr: `cluster_queue:kueue_unreserved_quota:max{cluster_queue="a"}`},
		{name: "two levels of aggregation", expr: `avg by (cluster) (sum by (cluster, node) (x))`},
		{name: "without, of a closed set", expr: `sum without (node) (sum by (cluster, node) (x))`},
		{name: "pasted example of a job", expr: `sum by (cluster) (a) or 0 * group by (cluster) (up{job="..."} == 1)`, want: []string{`1:49 placeholder: replace job="..." by a value that your series have: now it matches none`}},
		{name: "pasted example with an ellipsis, and a pasted JOB", expr: `sum by (cluster) (a{model=~"…"}) or 0 * group by (cluster) (up{job="JOB"} == 1)`, want: []string{"1:19 placeholder: ", "1:61 placeholder: "}},
		{name: "any three letters", expr: `sum by (cluster) (a{zone=~"..."})`},
		{name: "ratio of equal labels", expr: `sum by (cluster) (a) / sum by (cluster) (b)`},
		{name: "on the cluster", expr: `sum by (cluster, node) (a) / on (cluster) group_left () sum by (cluster) (b)`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in node"}},
		{name: "fallback", expr: `sum by (cluster) (a) or 0 * sum by (cluster) (up)`},
		{name: "filter with a fallback", expr: `sum by (cluster) (a) > 5 or 0 * sum by (cluster) (up)`},
		{name: "filter inside an aggregation", expr: `count by (cluster) (a > 5)`},
		{name: "filter inside an aggregation with a fallback", expr: `count by (cluster) (a > 5) or 0 * sum by (cluster) (up)`},
		{name: "bool inside an aggregation", expr: `sum by (cluster) (a > bool 5)`},
		{name: "fallback without the cluster", expr: `sum by (cluster) (a) or vector(0)`, want: []string{`1:25 cluster-label: the series after or have no label "cluster" and add no value for a cluster`}},
		{name: "fallback inside an aggregation by the cluster", expr: `sum by (cluster) (a or vector(0))`, want: []string{"1:24 cluster-label:"}},
		{name: "fallback of an operand that is matched on the cluster", expr: `sum by (cluster) (a) * on (cluster) group_left () (sum by (cluster) (b) or vector(0))`, want: []string{"1:76 cluster-label:"}},
		{name: "fallback that gives the result its cluster", expr: `sum by (node) (a) * on () group_left (cluster) (sum by (cluster) (b{cluster="x"}) or vector(0))`, want: []string{
			"1:1 several-series:", "1:86 cluster-label:"}},
		{name: "fallback of the many side", expr: `(sum by (cluster) (a) or vector(0)) * on () group_left () sum(b)`, want: []string{"1:26 cluster-label:"}},
		{name: "fallback inside scalar", expr: `sum by (cluster) (a) / scalar(a or vector(0))`},
		{name: "fallback on the right of and", expr: `sum by (cluster) (a) and on () (b or vector(0))`},
		{name: "fallback on the right of unless", expr: `sum by (cluster) (a) unless ignoring (cluster) (sum by (cluster) (b) or vector(0))`},
		{name: "fallback on the one side", expr: `sum by (cluster) (a) * on () group_left () (b or vector(0))`},
		{name: "fallback on the one side of group_right", expr: `(b or vector(0)) * on () group_right () sum by (cluster) (a)`},
		{name: "fallback inside a sum over the fleet", expr: `sum by (cluster) (a) * on () group_left () sum(b or vector(0))`},
		{name: "top clusters", expr: `topk(3, sum by (cluster) (a))`, want: []string{"1:1 filter: only some clusters have a result, because topk chooses among the clusters"}},
		{name: "lowest clusters under arithmetic", expr: `1 - bottomk(1, sum by (cluster) (a))`, want: []string{"1:5 filter:"}},
		{name: "top nodes of each cluster", expr: `sum by (cluster) (topk(3, a))`},
		{name: "future", expr: `sum by (cluster) (a offset -5m)`, want: []string{"1:19 evaluation-time: reads the future"}},
		{name: "past", expr: `sum by (cluster) (a offset 5m)`},
		{name: "fixed time", expr: `sum by (cluster) (a @ 1700000000)`, want: []string{"1:19 evaluation-time: reads the samples of a fixed time (@)"}},
		{name: "fixed time of a subquery", expr: `max_over_time(sum by (cluster) (a)[1h:5m] @ 1700000000)`, want: []string{"1:15 evaluation-time:"}},
		{name: "end of the evaluation", expr: `sum by (cluster) (a @ end())`},
		{name: "percentile", expr: `histogram_quantile(99, sum by (cluster, le) (rate(x_bucket[5m])))`, want: []string{"1:20 quantile: the quantile must be between 0 and 1"}},
		{name: "negative quantile", expr: `quantile by (cluster) (-1, a)`, want: []string{"1:24 quantile:"}},
		{name: "quantile over time", expr: `max by (cluster) (quantile_over_time(95, a[1h]))`, want: []string{"1:38 quantile:"}},
		{name: "the largest of each cluster", expr: `topk by (cluster) (1, a)`},
		{name: "the largest of each cluster, joined by a label that it keeps", expr: `max by (cluster) (topk by (cluster) (1, a) * on (cluster, node) group_left () sum by (cluster, node) (b))`},
		{name: "the largest of each cluster and model", expr: `topk by (cluster, model) (1, a)`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in model"}},
		{name: "the largest of each cluster by a new label", expr: `label_replace(topk by (cluster) (1, a), "cluster", "$1", "node", "(.*)-.*")`, want: []string{"1:1 several-series:"}},
		{name: "the two largest of each cluster", expr: `topk by (cluster) (2, a)`, want: []string{"1:1 several-series:"}},
		{name: "the largest of all", expr: `topk(1, sum by (cluster) (a))`, want: []string{"1:1 filter:"}},
		{name: "metric of a server with a colon", expr: `sum by (cluster) (rate(vllm:request_success_total[5m]))`},
		{name: "gauge of a server with a colon", expr: `vllm:num_requests_running`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in instance"}},
		{name: "counter of a server with a colon", expr: `sum by (cluster) (sglang:requests_total)`, want: []string{"1:19 raw-counter:"}},
		{name: "delta of a counter", expr: `sum by (cluster) (delta(x_total[5m]))`, want: []string{"1:19 raw-counter: delta of a counter is negative after a restart: use increase"}},
		{name: "delta of a gauge", expr: `sum by (cluster) (delta(x_celsius[5m]))`},
		{name: "one cluster", expr: `sum by (cluster) (a{cluster="c1"})`, want: []string{"1:19 one-cluster: reads c1 only: the other clusters have no series"}},
		{name: "the cluster of a variable", expr: `sum by (cluster) (a{cluster="$cluster"})`},
		{name: "all but one cluster", expr: `sum by (cluster) (a{cluster!="c1"})`},
		{name: "the cluster label is emptied", expr: `label_replace(sum by (cluster) (a), "cluster", "", "cluster", ".*")`, want: []string{`1:1 cluster-label: the result has no label "cluster": label_replace removes it`}},
		{name: "the cluster label is made of a group that the expression lacks", expr: `label_replace(max by (cluster) (up), "cluster", "$2", "cluster", "prod-(.*)")`, want: []string{`1:1 cluster-label: the result has no label "cluster": label_replace removes it`}},
		{name: "the cluster label is made of a group whose name has the text after it", expr: `label_replace(max by (cluster) (up), "cluster", "$1x", "cluster", "(.*)")`, want: []string{"1:1 cluster-label:"}},
		{name: "the cluster label is made of a label that the series lost", expr: `label_replace(max by (cluster) (up), "cluster", "$1", "clusterr", "(.*)")`, want: []string{`1:1 cluster-label: the result has no label "cluster": label_replace removes it`}},
		{name: "a label that the series lost, and an expression that needs it", expr: `label_replace(max by (cluster) (up), "cluster", "$1", "clusterr", "(.+)")`},
		{name: "a part of the cluster label", expr: `label_replace(max by (cluster) (up), "cluster", "$1", "cluster", "prod-(.*)")`},
		{name: "one text for all clusters", expr: `label_replace(max by (cluster) (up), "cluster", "x", "cluster", ".*")`, want: []string{`1:1 cluster-label: label_replace gives the series of every cluster the same cluster "x": remove it`}},
		{name: "a new name for one cluster", expr: `label_replace(max by (cluster) (up), "cluster", "x", "cluster", "y")`},
		{name: "a cluster for series without one", expr: `label_replace(max(up), "cluster", "x", "", "")`},
		{name: "highest quantile", expr: `quantile by (cluster) (1, a)`},
		{name: "buckets without le", expr: `histogram_quantile(0.9, sum by (cluster) (rate(x_bucket[5m])))`, want: []string{"1:25 quantile: the buckets have lost the label le, and the result is empty: aggregate them by (cluster, le)"}},
		{name: "native histogram", expr: `histogram_quantile(0.9, sum by (cluster) (rate(x[5m])))`, want: []string{"1:1 idle: is NaN while nothing is counted, so that an idle cluster has no value: write (... >= 0 or 0 * group by (cluster) (up{job=JOB} == 1))"}},
		{name: "quantile with a value for idle clusters", expr: `histogram_quantile(0.9, sum by (cluster) (rate(x[5m]))) >= 0 or 0 * sum by (cluster) (x)`},
		{name: "mean of what may not happen", expr: `clamp_max(sum by (cluster) (rate(x_sum[5m])) / sum by (cluster) (rate(x_count[5m])), 5)`, want: []string{"1:11 idle:"}},
		{name: "share of CPU time", expr: `sum by (cluster) (rate(node_cpu_seconds_total{mode="idle"}[5m])) / sum by (cluster) (rate(node_cpu_seconds_total[5m]))`},
		{name: "mean of gauges", expr: `sum by (cluster) (x) / sum by (cluster) (y)`},
		{name: "mean on the right of unless", expr: `sum by (cluster) (x) unless sum by (cluster) (rate(x_sum[5m])) / sum by (cluster) (rate(x_count[5m])) > 5`},
		{name: "info joined", expr: `sum by (cluster) (a * on (cluster, node) group_left (model) max by (cluster, node, model) (b))`},
		{name: "joined to the cluster", expr: `label_join(sum by (site, nr) (a), "cluster", "-", "site", "nr")`},
		{name: "relabeled by a part", expr: `label_replace(sum by (site) (a), "cluster", "$1", "site", "(.*)-.*")`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in site"}},
		{name: "relabeled to a text around the cluster", expr: `label_replace(sum by (prometheus) (a), "cluster", "$1", "prometheus", "monitoring/(.*)")`},
		{name: "sum of equal values", expr: `sum by (cluster) (kube_node_spec_unschedulable == 0)`, want: []string{"1:1 constant: all values are 0, because == selects them: count the series, as in count by (...) (...)"}},
		{name: "mean of equal values", expr: `avg by (cluster) ((1 == ready))`, want: []string{"1:1 constant: all values are 1"}},
		{name: "sum of ones", expr: `sum by (cluster) (ready == 1)`},
		{name: "share of equal values", expr: `sum by (cluster) (ready == 0) / count by (cluster) (ready)`, want: []string{"1:1 constant: all values are 0"}},
		{name: "nodes with a value", expr: `sum by (cluster) (max by (cluster, node) (ready == 1))`},
		{name: "only nodes with a value", expr: `sum by (cluster) (max by (cluster, node) (a) * on (cluster, node) max by (cluster, node) (ready == 1))`},
		{name: "clusters with a value", expr: `sum by (cluster) (a) and sum by (cluster) (ready == 0)`},
		{name: "value with a fallback", expr: `max by (cluster) (ready == 1) or 0 * sum by (cluster) (up)`},
		{name: "time with a value", expr: `count_over_time(max by (cluster) (ready == 1)[1h:])`},
		{name: "count of equal values", expr: `count by (cluster) (ready == 0)`},
		{name: "experimental function", expr: `sum by (cluster) (mad_over_time(a[5m]))`},
		{name: "duration expression", expr: `sum by (cluster) (rate(a_total[5m * 2]))`},
		{name: "negative offset by a duration expression", expr: `sum by (cluster) (a offset -(5m * 2))`, want: []string{"1:19 evaluation-time: reads the future"}},
		{name: "experimental range", expr: `sum by (cluster) (rate(a_total[5m] anchored))`},
		{name: "experimental aggregation", expr: `limitk(2, sum by (cluster) (a))`, want: []string{"1:1 filter: only some clusters have a result, because limitk chooses among the clusters"}},
		{name: "labels of info metrics", expr: `sum by (cluster) (info(rate(sum by (job) (a)[5m:])))`},
		{name: "value for series that are missing", expr: `sum by (cluster) (a) + fill(0) sum by (cluster) (b)`},
		{name: "upper case", expr: `sum by (Cluster) (a)`, want: []string{`1:1 cluster-label: the result has no label "cluster": upper and lower case differ: write cluster, not Cluster`}},
		{name: "without instance", expr: `sum without (instance) (a)`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in labels of a: aggregate"}},
		{name: "top series of each cluster", expr: `topk by (cluster) (1, sum by (cluster, node) (x))`},
		{name: "relabeled to the cluster", expr: `label_replace(sum by (k8s_cluster) (x), "cluster", "$1", "k8s_cluster", "(.*)")`},
		{name: "relabeled and aggregated", expr: `sum by (cluster) (label_replace(x, "cluster", "$1", "k8s_cluster", "(.*)"))`},

		{name: "no by", expr: `sum(plimsoll_node_free_devices)`, want: []string{`1:1 cluster-label: the result has no label "cluster": write sum by (cluster) (...)`}},
		{name: "another label", expr: `sum by (node) (plimsoll_node_free_devices)`, want: []string{`1:1 cluster-label: the result has no label "cluster": add it to by (node)`}},
		{name: "lost inside", expr: `ceil(max by (node) (plimsoll_node_free_devices))`, want: []string{`1:6 cluster-label:`}},
		{name: "without the cluster", expr: `sum without (cluster) (a)`, want: []string{`1:1 cluster-label: the result has no label "cluster": remove "cluster" from without`}},
		{name: "matched on nothing", expr: `sum by (cluster) (a) + on () sum by (cluster) (b)`, want: []string{
			`1:1 cluster-label: the result has no label "cluster": add it to the labels that + matches on`,
			`1:22 matching: several series of the left side may match, which differ in cluster`}},
		{name: "absent", expr: `absent(a{job="x"})`, want: []string{`1:1 cluster-label: the result has no label "cluster": absent removes it`}},
		{name: "scraped series", expr: `plimsoll_node_free_devices`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in instance and other labels of plimsoll_node_free_devices"}},
		{name: "recorded by node", expr: `node:plimsoll_free_devices:placeable`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in node"}},
		{name: "more labels than the cluster", expr: `sum by (cluster, model) (a)`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in model"}},
		{name: "one of two labels fixed", expr: `sum by (cluster, model) (a{model="x"})`},
		{name: "constant", expr: `vector(1)`, want: []string{"1:1 constant: reads no series"}},
		{name: "the same twice", expr: `sum by (cluster) (a) / sum by (cluster) (a)`, want: []string{"1:1 constant: both sides of / are equal"}},
		{name: "quantile of all buckets", expr: `histogram_quantile(0.99, rate(x_bucket[5m]))`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in instance and other labels of x_bucket: aggregate the buckets, as in histogram_quantile(0.9, sum by (cluster, le) (rate(...)))"}},
		{name: "filter", expr: `sum by (cluster) (a) > 5`, want: []string{"1:22 filter: a cluster for which the comparison is false has no result: write > bool"}},
		{name: "filter under arithmetic", expr: `100 - (sum by (cluster) (a) >= 5)`, want: []string{"1:29 filter:"}},
		{name: "bool", expr: `sum by (cluster) (a) > bool 5`},
		{name: "and", expr: `sum by (cluster) (a) and sum by (cluster) (b) > 0`},
		{name: "every series", expr: `count by (cluster) ({job="x"})`, want: []string{"1:21 every-series: reads the series of every metric"}},
		{name: "every name", expr: `count by (cluster) ({__name__=~".+"})`, want: []string{"1:21 every-series:"}},
		{name: "names by prefix", expr: `count by (cluster) ({__name__=~"DCGM_.+"})`},
	})
}

func TestCheckCounters(t *testing.T) {
	runCases(t, Options{ClusterLabel: "cluster"}, []checkCase{
		{name: "rate", expr: `sum by (cluster) (rate(http_requests_total[5m]))`},
		{name: "increase of a DCGM counter", expr: `sum by (cluster) (increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1h]))`},
		{name: "difference", expr: `sum by (cluster) (a_total - a_total offset 1h)`},
		{name: "count", expr: `count by (cluster) (a_total)`},
		{name: "difference of two counters", expr: `sum by (cluster) (a_total - b_total)`},
		{name: "difference from a number", expr: `100 - sum by (cluster) (errors_total)`, want: []string{"1:25 raw-counter: errors_total only grows"}},
		{name: "less a number", expr: `sum by (cluster) (errors_total) - 5`, want: []string{"1:19 raw-counter:"}},
		{name: "presence of another", expr: `sum by (cluster) (a and on (cluster) b_total)`},
		{name: "mean of a histogram", expr: `sum by (cluster) (a_sum) / sum by (cluster) (a_count)`},
		{name: "unknown kind", expr: `sum by (cluster) (rate(requests[5m]))`},
		{name: "recorded rate", expr: `cluster:requests:rate5m`},
		{name: "value", expr: `sum by (cluster) (a_total)`, want: []string{"1:19 raw-counter: a_total only grows"}},
		{name: "value of a DCGM counter", expr: `sum by (cluster) (DCGM_FI_DEV_PCIE_REPLAY_COUNTER)`, want: []string{"1:19 raw-counter:"}},
		{name: "maximum over time", expr: `max by (cluster) (max_over_time(a_total[1h]))`, want: []string{"1:33 raw-counter:"}},
		{name: "fallback of 0", expr: `sum by (cluster) (rate(a_total[5m])) or 0 * sum by (cluster) (b_total)`},
		{name: "rate of a gauge", expr: `avg by (cluster) (rate(DCGM_FI_DEV_GPU_UTIL[5m]))`, want: []string{"1:19 rate-of-gauge: DCGM_FI_DEV_GPU_UTIL is a gauge"}},
		{name: "increase of free devices", expr: `sum by (cluster) (increase(plimsoll_node_free_devices[5m]))`, want: []string{"1:19 rate-of-gauge:"}},
		{name: "rate of a sum", expr: `rate(cluster:requests:sum[5m])`, want: []string{"1:1 rate-of-recorded:"}},
		{name: "rate of a recorded series in a subquery", expr: `rate(cluster:requests:sum[5m:])`, want: []string{"1:1 rate-of-recorded: cluster:requests:sum is recorded"}},
		{name: "quantile of a native histogram", expr: `histogram_quantile(0.9, sum by (cluster) (rate(kueue_admission_wait_time_seconds[5m])))`, want: []string{"1:1 idle: is NaN while nothing is counted, so that an idle cluster has no value: write (... >= 0 or 0 * group by (cluster) (up{job=JOB} == 1))"}},
		{name: "count of a native histogram", expr: `histogram_count(sum by (cluster) (rate(kueue_admission_wait_time_seconds[5m])))`},
		{name: "native histogram in a subquery", expr: `max by (cluster) (histogram_avg(sum by (cluster) (increase(plimsoll_gate_admitted_seconds[5m:]))))`},
		{name: "rate of a gauge beside a histogram", expr: `sum by (cluster) (rate(kube_pod_info[5m])) * on (cluster) histogram_count(sum by (cluster) (rate(kueue_admission_wait_time_seconds[5m])))`, want: []string{"1:19 rate-of-gauge:"}},
		{name: "rate of a gauge in a subquery", expr: `sum by (cluster) (rate((plimsoll_node_free_devices)[5m:]))`, want: []string{"1:19 rate-of-gauge:"}},
		{name: "events", expr: `sum by (cluster) (increase(x_errors_total[1d]))`, want: []string{
			"1:1 event: clusters where no event was counted may have no series x_errors_total, and get no value: write (sum by (cluster) (increase(x_errors_total[1d])) or 0 * group by (cluster) (up{job=JOB} == 1))"}},
		{name: "share of events", expr: `1 - sum by (cluster) (rate(x_requests_total{code=~"5.."}[5m])) / sum by (cluster) (rate(x_requests_total[5m]))`, want: []string{"1:5 event:"}},
		{name: "events filled with 0", expr: `sum by (cluster) (a) + fill(0) sum by (cluster) (increase(x_errors_total[1d]))`},
		{name: "events with a fallback", expr: `sum by (cluster) (increase(x_errors_total[1d])) or 0 * sum by (cluster) (up)`},
		{name: "few of something selected, negated", expr: `-count by (cluster) (kube_pod_labels{label_team="a"})`, want: []string{
			`1:2 event: count is never 0: clusters without such series have none, and get no value: write (count by (cluster) (kube_pod_labels{label_team="a"}) or 0 * group by (cluster) (up{job=JOB} == 1))`}},
		{name: "many of something selected", expr: `count by (cluster) (kube_pod_labels{label_team="a"})`},
		{name: "number of all", expr: `-count by (cluster) (kube_node_info{job="kube-state-metrics"})`},
		{name: "series that have no event", expr: `sum by (cluster) (a) unless sum by (cluster) (increase(x_errors_total[1d])) > 0`},
		{name: "events that the shipped rules record", expr: `sum by (cluster) (increase(plimsoll_xid_total[1d]))`, want: []string{"1:1 event: clusters where no event was counted may have no series plimsoll_xid_total, and get no value: read cluster_severity:plimsoll_xid_events:increase1d"}},
		{name: "rate of a sum of counters", expr: `rate(sum by (cluster) (x_total)[5m:])`, want: []string{"1:1 rate-of-recorded: rate over a sum of counters counts the restart of one process as growth of all: write sum by (...) (rate(...))"}},
		{name: "increase of a scaled mean of counters", expr: `increase((8 * avg by (cluster) (x_total))[1h:1m])`, want: []string{"1:1 rate-of-recorded: increase over a sum of counters"}},
		{name: "rate of two added counters", expr: `sum by (cluster) (rate((a_total + b_total)[5m:]))`, want: []string{"1:19 rate-of-recorded:"}},
		{name: "rate of a counter in a subquery", expr: `sum by (cluster) (rate(x_total[5m:]))`},
		{name: "rate of a counter with an offset", expr: `sum by (cluster) (rate((x_total + 5)[5m:]))`},
		{name: "increase of a sum of rates", expr: `increase(sum by (cluster) (rate(x_total[5m]))[1h:])`},
		{name: "rate of a number of series", expr: `rate(sum by (cluster) (count by (cluster, node) (x_total))[1h:])`},
		{name: "highest sum of rates", expr: `max_over_time(sum by (cluster) (rate(x_total[5m]))[1h:])`},
	})
}

func TestCheckMatching(t *testing.T) {
	runCases(t, Options{ClusterLabel: "cluster"}, []checkCase{
		{name: "different labels", expr: `sum by (cluster) (sum by (cluster, node) (a) / sum by (cluster) (b))`, want: []string{"1:46 matching: no series can match: only one side has the label node"}},
		{name: "ignoring the difference", expr: `sum by (cluster) (sum by (cluster, node) (a) / ignoring (node) group_left () sum by (cluster) (b))`},
		{name: "scraped and aggregated", expr: `max by (cluster) (a / sum by (cluster) (b))`, want: []string{"1:21 matching: no series can match: a has labels that the right side lacks, such as instance"}},
		{name: "aggregated and rate", expr: `max by (cluster) (sum by (cluster) (b) / rate(a_total[5m]))`, want: []string{"1:40 matching: no series can match: a_total has labels that the left side lacks"}},
		{name: "label of one side", expr: `max by (cluster) (sum by (cluster) (a) * on (node) sum by (node) (b))`, want: []string{
			`1:19 cluster-label:`, `1:40 matching: no series can match: only the right side has the label "node"`}},
		{name: "several series on the left", expr: `sum by (cluster) (sum by (cluster, node) (a) * on (cluster) sum by (cluster) (b))`, want: []string{"1:46 matching: several series of the left side may match, which differ in node, and the query then fails: aggregate this side, or use group_left"}},
		{name: "several series on the one side", expr: `sum by (cluster) (x * on (cluster) group_left () sum by (cluster, node) (b))`, want: []string{"1:21 matching: several series of the right side may match"}},
		{name: "ignoring without group_left", expr: `sum by (cluster) (sum by (cluster, node) (a) / ignoring (node) sum by (cluster) (b))`, want: []string{"1:46 matching: several series of the left side may match, which differ in node, and the query then fails: aggregate this side, or use group_left"}},
		{name: "ignoring a label of the one side", expr: `sum by (cluster) (sum by (cluster) (a) / ignoring (node) group_left () sum by (cluster, node) (b))`, want: []string{"1:40 matching: several series of the right side may match, which differ in node"}},
		{name: "ignoring a label of both sides", expr: `sum by (cluster) (sum by (cluster, state) (a) - ignoring (state) sum by (cluster, state) (b))`, want: []string{"1:47 matching: several series of the left side may match, which differ in state"}},
		{name: "ignoring a fixed label", expr: `sum by (cluster) (x{state="a"} - ignoring (state) x{state="b"})`},
		{name: "ignoring a fixed label of aggregates", expr: `sum by (cluster) (sum by (cluster, state) (x{state="a"}) - ignoring (state) sum by (cluster, state) (x{state="b"}))`},
		{name: "ignoring, and differing in another label", expr: `sum by (cluster) (sum by (cluster, node) (a) / ignoring (state) sum by (cluster) (b))`, want: []string{"1:46 matching: no series can match"}},
		{name: "a label with several values in a cluster", expr: `sum by (cluster) (a * on (cluster) group_left (model) max by (cluster, model) (b))`, want: []string{"1:21 matching: several series of the right side may match, which differ in model"}},
		{name: "a label with several values, ignoring", expr: `sum by (cluster) (sum by (cluster, node) (a) * ignoring (node, model) group_left (model) max by (cluster, model) (b))`, want: []string{"1:46 matching: several series of the right side may match, which differ in model"}},
		{name: "a label with several values, group_right", expr: `sum by (cluster) (max by (cluster, UUID) (b) * on (cluster) group_right (UUID) a)`, want: []string{"1:46 matching: several series of the left side may match, which differ in UUID"}},
		{name: "a label that describes the node", expr: `sum by (cluster) (a * on (cluster, node) group_left (model) max by (cluster, node, model) (b))`},
		{name: "a label that describes one node", expr: `sum by (cluster) (a * on (cluster, node) group_left (model) max by (cluster, node, model) (b{node="x"}))`},
		{name: "a label that describes the cluster", expr: `sum by (cluster) (a * on (cluster) group_left (region) max by (cluster, region) (cluster_info))`},
		{name: "labels that are not known", expr: `sum by (cluster) (a * on (cluster) group_left (model) recorded:metric:x)`},
		{name: "fixed label", expr: `sum by (cluster) (sum by (cluster, model) (a{model="x"}) * on (cluster) sum by (cluster) (b))`},
		{name: "pods of different clusters", expr: `sum by (cluster) (a * on (namespace, pod) group_left () b{phase="Running"})`, want: []string{"1:21 matching: series of different clusters match, which have the same namespace, pod: write on (cluster, namespace, pod)"}},
		{name: "nodes of different clusters", expr: `sum by (cluster) (a unless on (node) b)`, want: []string{"1:21 matching: series of different clusters match, which have the same node"}},
		{name: "devices of different clusters", expr: `sum by (cluster) (a * on (UUID) group_left (pod) b)`},
		{name: "devices and nodes of different clusters", expr: `sum by (cluster) (a * on (node, UUID) group_left (pod) b)`},
		{name: "nodes of one cluster", expr: `sum by (cluster) (a * on (node) group_left () b{cluster="x"})`},
		{name: "cluster of the other side", expr: `sum by (cluster) (a * on (namespace, pod) group_left (cluster) b)`},
		{name: "prices of models", expr: `sum by (cluster) (a * on (model) group_left () price)`},
		{name: "models of the fleet", expr: `sum by (cluster) (a * on (model) group_left () max by (model) (price))`},
		{name: "set operator", expr: `sum by (cluster) (sum by (cluster, node) (a) and on (cluster) sum by (cluster) (b))`},
		{name: "two scraped series", expr: `sum by (cluster) (a / b)`},
		{name: "recorded and aggregated", expr: `cluster:a:sum / sum by (cluster) (b)`},
	})
}

func TestCheckFreshness(t *testing.T) {
	runCases(t, Options{Use: Age, ClusterLabel: "cluster"}, []checkCase{
		{name: "timestamp value", expr: `time() - max by (cluster) (last_over_time(cluster:plimsoll_sample_timestamp_seconds:min[1h]))`},
		{name: "timestamp of a scraped series", expr: `time() - max by (cluster) (timestamp(up))`},
		{name: "recorded age", expr: `cluster:sample_age_seconds:max`},
		{name: "timestamp of a recorded series", expr: `time() - max by (cluster) (timestamp(cluster:free:sum))`, want: []string{"1:28 timestamp: timestamp() of the recorded series cluster:free:sum"}},
		{name: "timestamp of a sum", expr: `time() - timestamp(sum by (cluster) (up))`, want: []string{"1:10 timestamp: timestamp() of a computed value"}},
		{name: "negative age", expr: `(max by (cluster) (timestamp(up)) - time())`, want: []string{"1:1 age: returns a negative age"}},
		{name: "reversed age", expr: `-(max by (cluster) (timestamp(up)) - time())`},
		{name: "rest of an age", expr: `max by (cluster) (5 - (time() - timestamp(up)))`},
		{name: "age in a subtraction", expr: `max by (cluster) (time() - timestamp(up)) - 5`},
		{name: "usage is no age", expr: `max by (cluster) (memory_usage_timestamp)`, want: []string{"1:1 age:"}},
		{name: "lag", expr: `max by (cluster) (consumer_lag_seconds)`},
		{name: "no age", expr: `max by (cluster) (sample_timestamp_seconds)`, want: []string{"1:1 age: must return an age in seconds"}},
	})
	runCases(t, Options{Use: Time, ClusterLabel: "cluster"}, []checkCase{
		{name: "time", expr: `min by (cluster) (cluster:plimsoll_sample_timestamp_seconds:min)`},
		{name: "age instead of time", expr: `time() - min by (cluster) (x_timestamp_seconds)`, want: []string{"1:1 age: must return the time of the samples, not their age"}},
	})
}

func TestCheckAgeOfSamples(t *testing.T) {
	runCases(t, Options{ClusterLabel: "cluster", AgeUnknown: true}, []checkCase{
		{name: "scraped", expr: `sum by (cluster) (a)`},
		{name: "short range", expr: `sum by (cluster) (rate(a_total[10m]))`},
		{name: "recorded", expr: `cluster:price:max`, want: []string{"1:1 freshness: the age of the samples behind a recorded series is not known: set freshness.query"}},
		{name: "long range", expr: `avg by (cluster) (avg_over_time(a{b="c"}[1d]))`, want: []string{
			`1:33 freshness: a cluster that stopped to report keeps its value for 1d: set freshness.query of the policy, such as time() - max by (cluster) (timestamp(a{b="c"}))`}},
		{name: "subquery", expr: `max_over_time(sum by (cluster) (a)[1h:])`, want: []string{"1:15 freshness: a cluster that stopped to report keeps its value for 1h: set freshness.query of the policy, such as time() - max by (cluster) (timestamp(a))"}},
		{name: "range that says how old a sample may be", expr: `max by (cluster) (last_over_time(a[2h]))`},
		{name: "server with a colon", expr: `sum by (cluster) (vllm:num_requests_running)`},
		{name: "of the shipped rules", expr: `cluster:plimsoll_gpu_utilization:avg`},
		{name: "long range of the shipped rules", expr: `avg_over_time(cluster:plimsoll_gpu_utilization:avg[1h])`, want: []string{"1:15 freshness: a cluster that stopped to report keeps its value for 1h: set freshness.query of the policy, to the age of what the rule reads"}},
	})
	runCases(t, Options{ClusterLabel: "cluster"}, []checkCase{{name: "the age is checked", expr: `cluster:price:max`}})
}

func TestCheckRequirements(t *testing.T) {
	runCases(t, Options{Use: Requirement, ClusterLabel: "cluster"}, []checkCase{
		{name: "filter", expr: `sum by (cluster) (a) > 5`},
		{name: "equal values", expr: `max by (cluster) (a == 1)`},
		{name: "values that say no", expr: `max by (cluster) (a == 0)`, want: []string{"1:1 constant: all values are 0"}},
		{name: "no cluster", expr: `sum(a) > 5`, want: []string{"1:1 cluster-label:"}},
		{name: "equal to 0", expr: `max by (cluster) (a) == 0`, want: []string{"1:1 zero: keeps the value 0, which does not meet a requirement: compare with bool, as in x == bool y"}},
		{name: "below a bound", expr: `max by (cluster) (a) < 5`, want: []string{"1:1 zero:"}},
		{name: "above a negative bound", expr: `max by (cluster) (a) >= -1`, want: []string{"1:1 zero:"}},
		{name: "a bound on the left", expr: `0 >= max by (cluster) (a)`, want: []string{"1:1 zero:"}},
		{name: "not 0", expr: `max by (cluster) (a) != 0`},
		{name: "with bool", expr: `max by (cluster) (a) == bool 0`},
		{name: "0 in both operands", expr: `max by (cluster) (a) == 0 or max by (cluster) (b) < 5`, want: []string{"1:1 zero:", "1:30 zero:"}},
		{name: "0 in the kept operand", expr: `max by (cluster) (a) == 0 and max by (cluster) (b) < 5`, want: []string{"1:1 zero:"}},
		{name: "two vectors", expr: `max by (cluster) (a) == max by (cluster) (b)`},
		{name: "events that may never have happened", expr: `sum by (cluster) (increase(x_errors_total[1d])) < bool 3`, want: []string{"1:1 event: clusters where no event was counted may have no series x_errors_total, and do not meet the requirement: set absent: Met"}},
		{name: "events of which a rule records 0", expr: `sum by (cluster) (increase(plimsoll_xid_total{xid="79"}[1d])) == bool 0`, want: []string{"1:1 event: clusters where no event was counted may have no series plimsoll_xid_total, and do not meet the requirement: read cluster_severity:plimsoll_xid_events:increase1d"}},
		{name: "changes of a counter of events", expr: `sum by (cluster) (changes(plimsoll_xid_total{xid="79"}[1d])) < bool 1`, want: []string{"1:1 event: clusters where no event was counted may have no series plimsoll_xid_total, and do not meet the requirement: read cluster_severity:plimsoll_xid_events:increase1d"}},
		{name: "changes of a gauge", expr: `sum by (cluster) (changes(x_errors_ratio[1d])) < bool 1`},
		{name: "the recorded events", expr: `cluster_severity:plimsoll_xid_events:increase1d{severity="critical"} == bool 0`},
		{name: "events that must have happened", expr: `sum by (cluster) (increase(x_errors_total[1d])) > 3`},
		{name: "number of something selected", expr: `count by (cluster) (node_free > 4) == bool 0`, want: []string{"1:1 event: count is never 0: clusters without such series have none, and do not meet the requirement: set absent: Met"}},
		{name: "words with parts of an event", expr: `sum by (cluster) (rate(x_transferred_bytes_total[5m]) + rate(x_default_rooms_total[5m]) + rate(x_preset_total[5m])) < bool 3`},
		{name: "a label with a part of an event", expr: `sum by (cluster) (rate(x_total{reason="preferred"}[5m])) < bool 3`},
		{name: "the reason of an event", expr: `sum by (cluster) (rate(x_total{reason="OOMKilled"}[5m])) < bool 3`, want: []string{"1:1 event:"}},
		{name: "a counter of a container", expr: `sum by (cluster) (increase(container_oom_events_total[1h])) == bool 0`},
		{name: "a counter of work", expr: `sum by (cluster) (rate(x_requests_total[5m])) < bool 3`},
		{name: "a counter that is exported from 0 on", expr: `sum by (cluster) (increase(node_network_receive_errs_total[1d])) == bool 0`},
		{name: "requests with an error", expr: `sum by (cluster) (increase(x_requests_total{code=~"5.."}[1d])) == bool 0`, want: []string{"1:1 event: clusters where no event was counted may have no series x_requests_total, and do not meet the requirement: set absent: Met"}},
		{name: "requests without an error", expr: `sum by (cluster) (increase(x_requests_total{code!~"5.."}[1d])) == bool 0`},
		{name: "events as one part of a requirement", expr: `sum by (cluster) (a) > 3 and sum by (cluster) (increase(x_errors_total[1d])) == 0`, want: []string{
			"1:30 event: clusters where no event was counted may have no series x_errors_total, and do not meet the requirement: write (sum by (cluster) (increase(x_errors_total[1d])) or 0 * group by (cluster) (up{job=JOB} == 1))"}},
		{name: "events with a fallback", expr: `sum by (cluster) (a) > 3 and (sum by (cluster) (increase(x_errors_total[1d])) or 0 * sum by (cluster) (up)) == 0`},
		{name: "unless any event", expr: `group by (cluster) (a) unless sum by (cluster) (increase(x_errors_total[1d]))`, want: []string{
			"1:31 event: removes every cluster that ever counted an event in x_errors_total, also if there is none in this time: write unless (... > 0)"}},
		{name: "unless there were events", expr: `group by (cluster) (a) unless sum by (cluster) (increase(x_errors_total[1d])) > 0`},
		{name: "unless there were few events", expr: `group by (cluster) (a) unless sum by (cluster) (increase(x_errors_total[1d])) < 5`, want: []string{
			"1:31 event: clusters where no event was counted may have no series x_errors_total, and are not removed: write (sum by (cluster) (increase(x_errors_total[1d])) or 0 * group by (cluster) (up{job=JOB} == 1))"}},
		{name: "absence in one cluster", expr: `absent(a{cluster="c9"})`, want: []string{"1:8 one-cluster: reads c9 only"}},
		{name: "absence", expr: `absent(a)`, want: []string{`1:1 cluster-label: the result has no label "cluster": absent removes it, write group by (cluster) (up) unless group by (cluster) (...)`}},
		{name: "time of day", expr: `hour() < bool 6`, want: []string{"1:1 constant: reads only the time, which is the same for all clusters: set scope: Fleet"}},
	})
	runCases(t, Options{Use: Requirement, ClusterLabel: "cluster", AbsentAccepted: true}, []checkCase{
		{name: "events without which the requirement is met", expr: `sum by (cluster) (increase(x_errors_total[1d])) < bool 3`},
		{name: "the first event is not counted", expr: `sum by (cluster) (increase(plimsoll_xid_total[1d])) == bool 0`, want: []string{
			"1:1 event: the series of plimsoll_xid_total begins with the first event, which rate and increase do not count: read cluster_severity:plimsoll_xid_events:increase1d"}},
	})
	runCases(t, Options{Use: FleetRequirement, ClusterLabel: "cluster"}, []checkCase{
		{name: "no cluster", expr: `sum(a) > 5`},
		{name: "constant", expr: `vector(1)`, want: []string{"1:1 constant:"}},
		{name: "absence in one cluster", expr: `absent(freeze{cluster="hub"})`},
		{name: "weekend", expr: `day_of_week() == 6 or day_of_week() == bool 0`},
		{name: "first hour", expr: `hour() == 0`, want: []string{"1:1 zero:"}},
	})
}

func TestIsRatio(t *testing.T) {
	for query, want := range map[string]bool{
		`sum by (cluster) (a{b="c"}) / sum by (cluster) (a)`:                                                                               true,
		`1 - sum by (cluster) (a{b="c"}) / sum by (cluster) (a)`:                                                                           true,
		`avg by (cluster) (device:plimsoll_utilization:ratio)`:                                                                             true,
		`avg_over_time(cluster:plimsoll_gpu_utilization:avg[10m])`:                                                                         true,
		`100 * sum by (cluster) (a{b="c"}) / sum by (cluster) (a)`:                                                                         false,
		`sum by (cluster) (device:plimsoll_utilization:ratio)`:                                                                             false,
		`sum by (cluster) (cluster_resource_model:plimsoll_usable_devices:sum) / sum by (cluster) (cluster_resource:plimsoll_devices:sum)`: true,
		`sum by (cluster) (cluster_model:plimsoll_power_watts:sum) / sum by (cluster) (cluster_resource:plimsoll_devices:sum)`:             false,
		`sum by (cluster) (rate(x_sum[5m])) / sum by (cluster) (rate(x_count[5m]))`:                                                        false,
		`sum by (cluster) (a) / 8`:                                 false,
		`100 - sum by (cluster) (a{b="c"}) / sum by (cluster) (a)`: false,
		`sum by (cluster) (a`:                                      false,
	} {
		if got := IsRatio(query); got != want {
			t.Errorf("IsRatio(%s) = %t", query, got)
		}
	}
}

func TestCheckLessIsBetter(t *testing.T) {
	runCases(t, Options{ClusterLabel: "cluster", LessIsBetter: true}, []checkCase{
		{name: "sum of selected info metrics", expr: `sum by (cluster) (kube_node_labels{label_type="spot"}) / count by (cluster) (kube_node_info)`, want: []string{"1:1 event: sum is never 0: clusters without such series have none, and get no value"}},
		{name: "sum of selected values", expr: `sum by (cluster) (plimsoll_node_devices{model="a"})`},
		{name: "few nodes of a kind", expr: `count by (cluster) (kube_node_labels{label_capacity="spot"})`, want: []string{"1:1 event: count is never 0"}},
		{name: "few nodes", expr: `count by (cluster) (kube_node_info)`},
		{name: "with a value for clusters without", expr: `count by (cluster) (kube_node_labels{label_capacity="spot"}) or 0 * sum by (cluster) (up)`},
		{name: "share", expr: `count by (cluster) (x{a="b"}) / count by (cluster) (x)`, want: []string{"1:1 event:"}},
	})
}

// If every cluster has its own endpoint, a result needs no cluster label but must be one
// series.
func TestCheckPerCluster(t *testing.T) {
	runCases(t, Options{}, []checkCase{
		{name: "aggregated", expr: `sum(a)`},
		{name: "by node", expr: `sum by (node) (a)`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in node: aggregate them, for example with sum (...)"}},
		{name: "scraped", expr: `a`, want: []string{"1:1 several-series:"}},
	})
}

// FuzzCheck checks that every expression that parses can be checked.
func FuzzCheck(f *testing.F) {
	for _, expr := range []string{`sum by (a) (x) / on (b) group_left (c) y`, `label_replace(x, "a", "", "", "")`, `absent({a="b"})`, `count_values("v", x) or -y`, `time() - timestamp(a:b)`, `a offset 1m > bool (b)`} {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		e, problems := promql.Parse(expr)
		if problems != nil || promql.Check(expr) != nil {
			return
		}
		for _, use := range []Use{Number, Age, Time, Requirement, FleetRequirement} {
			for _, found := range Check(e, expr, Options{Use: use, ClusterLabel: "cluster"}) {
				if found.Message == "" || found.Rule == "" || found.Pos.Offset < 0 || found.Pos.Offset > len(expr) {
					t.Fatalf("%q: %+v", expr, found)
				}
			}
		}
	})
}

func TestNameLabel(t *testing.T) {
	runCases(t, Options{ClusterLabel: "cluster", NameLabel: "model"}, []checkCase{
		{name: "one series for each model", expr: `sum by (cluster, model) (a)`},
		{name: "recorded by model", expr: `cluster_model:free:sum`},
		{name: "another label, too", expr: `sum by (cluster, model, node) (a)`, want: []string{"1:1 several-series: may return several series for a cluster, which differ in node"}},
		{name: "label lost", expr: `sum by (cluster) (a)`, want: []string{`1:1 name-label: the result has no label "model", from which nameFrom takes the names: keep it, as in sum by (cluster, model) (...)`}},
	})
}

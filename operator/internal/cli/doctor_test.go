package cli

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// brokenInstallations are changes of the complete installation in doctor.txtar, with the
// fault and the fix that doctor names.
var brokenInstallations = []struct {
	name       string
	file       string // of doctor.txtar; empty if only absent kinds matter
	from, to   string // regular expression, and its replacement
	absent     string // resources that the hub does not serve
	fault, fix string
}{
	{name: "wrong URL of Thanos", file: "hub/plimsoll.yaml",
		from:  `status: \{conditions: \[\{type: Ready, status: "True", reason: Reachable`,
		to:    `status: {conditions: [{type: Reachable, status: "False", reason: Unreachable, message: "no such host", lastTransitionTime: "2026-03-01T11:00:00Z"}, {type: Ready, status: "False", reason: Unreachable`,
		fault: "MetricsSource thanos +Reachable: Unreachable: no such host", fix: "kubectl edit metricssource thanos: spec.url"},
	{name: "quota can't be applied", file: "hub/plimsoll.yaml", from: `^`, to: policyWith("CapacityPolicy", "Applied", "NotOurs", "Cohort gpu belongs to another owner"),
		fault: "CapacityPolicy lab +Applied: NotOurs: Cohort gpu belongs to another owner", fix: "kubectl plimsoll quota -o wide"},
	{name: "reclaim without a source", file: "hub/plimsoll.yaml", from: `^`, to: policyWith("ReclaimPolicy", "Ready", "SourceNotFound", "MetricsSource x does not exist"),
		fault: "ReclaimPolicy lab +SourceNotFound: MetricsSource x does not exist", fix: "kubectl describe reclaimpolicy lab"},
	{name: "trials without a queue", file: "hub/plimsoll.yaml", from: `^`, to: policyWith("TrialPolicy", "Ready", "QueueNotFound", "no LocalQueue trials"),
		fault: "TrialPolicy lab +QueueNotFound: no LocalQueue trials", fix: "kubectl describe trialpolicy lab"},
	{name: "check with wrong parameters", file: "hub/plimsoll.yaml", from: `kind: PlacementGate, name: gpu\}`, to: "kind: Gate, name: gpu}",
		fault: "AdmissionCheck plimsoll +names no PlacementGate", fix: "kubectl edit admissioncheck plimsoll: spec.parameters"},
	{name: "CRD is missing", absent: "placementgates", fault: "PlacementGates +this cluster does not serve them", fix: "kubectl apply --server-side -k config/crd"},
	{name: "Kueue without MultiKueue's CRDs", absent: "multikueueconfigs", fault: "MultiKueueConfigs +this cluster does not serve them", fix: "install Kueue v0.19 on the hub, with MultiKueue"},
	{name: "feature gate MultiKueue is off", file: "hub/plimsoll.yaml", from: `(?s)(kind: MultiKueueConfig, name: plimsoll-gpu\}\}\n)status: [^\n]*`, to: "$1",
		fault: "AdmissionCheck multikueue +has no condition Active: Kueue runs without MultiKueue", fix: "the feature gate MultiKueue"},
	{name: "no quota", file: "hub/plimsoll.yaml", from: "nominalQuota: 256", to: "nominalQuota: 0", fault: "ClusterQueue gpu +has no quota", fix: "kubectl edit clusterqueue gpu: spec.resourceGroups"},
	{name: "gate's check is not on the queue", file: "hub/plimsoll.yaml", from: `\[\{name: plimsoll\}, \{name: multikueue\}\]`, to: "[{name: multikueue}]",
		fault: "ClusterQueue gpu +has a MultiKueue check .*, and no check of a gate", fix: "kubectl edit clusterqueue gpu: spec.admissionChecksStrategy"},
	{name: "no LocalQueue", file: "hub/installed.yaml", from: "clusterQueue: gpu", to: "clusterQueue: gpus", fault: "ClusterQueue gpu +no LocalQueue leads to it", fix: "create a LocalQueue with spec.clusterQueue: gpu"},
	{name: "wrong name of the LocalQueue in a job", file: "hub/installed.yaml", from: "queueName: gpu", to: "queueName: gpus",
		fault: "LocalQueue team-a/gpus +does not exist, and 1 workload waits for it", fix: "label kueue.x-k8s.io/queue-name"},
	{name: "token of a worker expired", file: "hub/plimsoll.yaml",
		from:  `(location: cluster1-kubeconfig.*\n)status: [^\n]*`,
		to:    `${1}status: {conditions: [{type: Active, status: "False", reason: ClientConnectionFailed, message: Unauthorized, lastTransitionTime: "2026-03-01T11:00:00Z"}]}`,
		fault: "worker cluster1 +is not connected by Kueue: Unauthorized", fix: "kubectl plimsoll connect cluster1=CONTEXT"},
	{name: "another dispatcher", file: "hub/operator.yaml", from: "dispatcherName: plimsoll.dev/dispatcher", to: "dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
		fault: "Kueue's dispatcher +kueue.x-k8s.io/multikueue-dispatcher-all-at-once, and PlacementGate gpu nominates", fix: "kubectl plimsoll connect --dispatcher=plimsoll.dev/dispatcher"},
	{name: "work is not applied", file: "hub/installed.yaml",
		from: `status: \{conditions: \[\{type: Applied, status: "True"[^\n]*`,
		to: `status:
  conditions: [{type: Applied, status: "False", reason: AppliedManifestWorkFailed, message: Failed to apply, lastTransitionTime: "2026-03-01T11:00:00Z"}]
  resourceStatus:
    manifests:
    - resourceMeta: {kind: PodMonitor, name: plimsoll-exporter}
      conditions: [{type: Applied, status: "False", reason: AppliedManifestFailed, message: no matches for kind PodMonitor, lastTransitionTime: "2026-03-01T11:00:00Z"}]`,
		fault: "ManifestWork cluster1/plimsoll-fleet +Failed to apply; PodMonitor plimsoll-exporter: no matches for kind PodMonitor", fix: "kubectl -n cluster1 describe manifestwork plimsoll-fleet"},
	{name: "text of a worker", file: "hub/installed.yaml", from: `type: Applied, status: "True", reason: AppliedManifestWorkComplete, message: ""`,
		to:    `type: Applied, status: "False", reason: AppliedManifestWorkFailed, message: "\x1b[31mred\nfine ` + strings.Repeat("x", 500) + `"`,
		fault: "ManifestWork cluster1/plimsoll-fleet +�\\[31mred fine x{283}\\.\\.\\.$", fix: "kubectl -n cluster1 describe manifestwork plimsoll-fleet"},
	{name: "the latest work is not applied", file: "hub/installed.yaml", from: `(metadata: \{name: plimsoll-fleet, namespace: cluster1)(\}\nstatus: \{conditions: \[\{type: Applied, status: "True", )`, to: `$1, generation: 2${2}observedGeneration: 1, `,
		fault: "ManifestWork cluster1/plimsoll-fleet +the work agent of the cluster has not applied its latest version", fix: "kubectl describe managedcluster cluster1"},
	{name: "add-on is not available", file: "hub/installed.yaml", from: `(type: Available, status: )"True"`, to: `${1}"False"`,
		fault: "add-on plimsoll-exporter of cluster1 +is not available", fix: "kubectl -n cluster1 describe managedclusteraddon plimsoll-exporter"},
	{name: "exporter is missing", file: "history.txt", from: `(?s).+`, to: "load 1m\n  up{cluster=\"cluster1\"} 1x1440\n",
		fault: "cluster cluster1 +has no metrics of the exporter", fix: "check on the cluster that the pods of plimsoll-exporter run"},
	{name: "rules are missing", file: "history.txt", from: `(?s).+`, to: "load 1m\n  plimsoll_exporter_last_collection_timestamp_seconds{cluster=\"cluster1\"} 1x1440\n",
		fault: "cluster cluster1 +has no series cluster:plimsoll_sample_timestamp_seconds:min", fix: "load rules/recording-"},
	{name: "operator is not installed", file: "hub/operator.yaml", from: `metadata: \{name: plimsoll-operator, namespace: plimsoll-system\}\nspec: \{template`, to: "metadata: {name: plimsoll-operator, namespace: other}\nspec: {template",
		fault: "Deployment plimsoll-system/plimsoll-operator +does not exist", fix: "kubectl apply --server-side -k config/default"},
}

// policyWith returns a policy with a condition that is False, as a YAML document.
func policyWith(kind, condition, reason, message string) string {
	return fmt.Sprintf("apiVersion: plimsoll.dev/v1alpha1\nkind: %s\nmetadata: {name: lab}\nstatus: {conditions: [{type: %s, status: \"False\", reason: %s, message: %s, lastTransitionTime: \"2026-03-01T11:00:00Z\"}]}\n---\n",
		kind, condition, reason, message)
}

// A source without encryption is a warning: it works, and the exit code is 0.
func TestDoctorWarnsOfPlainHTTP(t *testing.T) {
	plain, err := txtar.ParseFile(filepath.Join("testdata", "script", "doctor.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	const secure = `{type: Secure, status: "False", reason: PlainHTTP, message: use an https URL, lastTransitionTime: "2026-03-01T11:00:00Z"}`
	for i, f := range plain.Files {
		plain.Files[i].Data = bytes.Replace(f.Data, []byte(`{type: Ready, status: "True", reason: Reachable`), []byte(secure+`, {type: Ready, status: "True", reason: Reachable`), 1)
	}
	code, out := runDoctor(t, plain, "")
	if want := regexp.MustCompile(`(?m)^warning +MetricsSource thanos +Secure: PlainHTTP: use an https URL`); code != 0 || !want.MatchString(out) {
		t.Errorf("exit code %d, want %s in:\n%s", code, want, out)
	}
}

// A queue that preempts before the gate decides is a warning, and so is a cluster that starts nothing. What the operator has
// not measured is not ok. None of these hides that the gate is not Ready.
func TestDoctorWarnsOfGates(t *testing.T) {
	const ready, notReady = `{type: Ready, status: "True", reason: Ready`, `{type: Ready, status: "False", reason: SourceNotFound`
	for _, tc := range []struct{ name, condition, status, ready, want string }{
		{"a cluster starts nothing", "ClustersStart", "False", ready, `(?m)^warning +PlacementGate gpu +ClustersStart: Some: queue q preempts\n +→ kubectl describe placementgate gpu$`},
		{"all clusters start", "ClustersStart", "True", ready, `(?m)^ok +PlacementGate gpu +Ready`},
		{"quota below the devices", "PreemptionGated", "False", ready, `(?m)^warning +PlacementGate gpu +PreemptionGated: Some: queue q preempts\n +→ kubectl describe placementgate gpu$`},
		{"not measured", "PreemptionGated", "Unknown", ready, `(?m)^skipped +PlacementGate gpu +PreemptionGated: Some: queue q preempts$`},
		{"gate without a source", "PreemptionGated", "False", notReady, `(?m)^fault +PlacementGate gpu +SourceNotFound:`},
		{"gate without a source, not measured", "PreemptionGated", "Unknown", notReady, `(?m)^fault +PlacementGate gpu +SourceNotFound:`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files, err := txtar.ParseFile(filepath.Join("testdata", "script", "doctor.txtar"))
			if err != nil {
				t.Fatal(err)
			}
			condition := fmt.Sprintf(`{type: %s, status: %q, reason: Some, message: queue q preempts, lastTransitionTime: "2026-03-01T11:00:00Z"}, `, tc.condition, tc.status)
			for i, f := range files.Files {
				files.Files[i].Data = bytes.Replace(f.Data, []byte(ready), []byte(condition+tc.ready), 1)
			}
			code, out := runDoctor(t, files, "")
			if wantCode := strings.Count(tc.ready, `"False"`); code != wantCode || !regexp.MustCompile(tc.want).MatchString(out) {
				t.Errorf("exit code %d, want %d and %s in:\n%s", code, wantCode, tc.want, out)
			}
		})
	}
}

// The series of cluster1 name it by a label of the ManagedCluster, as the MetricsSource of the hub
// says. If the user may not read MetricsSources, doctor does not judge by the names.
func TestDoctorFollowsTheClusterMapping(t *testing.T) {
	for _, tc := range []struct{ name, forbidden, want string }{
		{"mapping of the hub", "", `(?m)^ok +series +cluster_queue:kueue_unreserved_quota:max exists for 1 cluster$`},
		{"MetricsSources are forbidden", "metricssources", `(?m)^skipped +series +not checked, because the MetricsSources can't be read`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files, err := txtar.ParseFile(filepath.Join("testdata", "script", "doctor.txtar"))
			if err != nil {
				t.Fatal(err)
			}
			changes := strings.NewReplacer(`{cluster="cluster1"`, `{site="eu-1"`, `url: "http://thanos:9090"}`, `url: "http://thanos:9090", clusterMapping: {label: site, match: Label, key: prometheus}}`,
				"kind: ManagedCluster\nmetadata: {name: cluster1}", "kind: ManagedCluster\nmetadata: {name: cluster1, labels: {prometheus: eu-1}}")
			for i, f := range files.Files {
				files.Files[i].Data = []byte(changes.Replace(string(f.Data)))
			}
			files.Files = append(files.Files, txtar.File{Name: "forbidden", Data: []byte(tc.forbidden + "\n")})
			code, out := runDoctor(t, files, "")
			if code != 0 || !regexp.MustCompile(tc.want).MatchString(out) {
				t.Errorf("exit code %d, want %s in:\n%s", code, tc.want, out)
			}
		})
	}
}

// A cluster that waits to be accepted is a warning. It has no series, and needs none.
func TestDoctorWarnsOfAnUnacceptedCluster(t *testing.T) {
	files, err := txtar.ParseFile(filepath.Join("testdata", "script", "doctor.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files.Files {
		if f.Name == "hub/plimsoll.yaml" {
			files.Files[i].Data = append([]byte("apiVersion: cluster.open-cluster-management.io/v1\nkind: ManagedCluster\nmetadata: {name: applicant}\nspec: {}\n---\n"), f.Data...)
		}
	}
	code, out := runDoctor(t, files, "")
	if want := regexp.MustCompile(`(?m)^warning +ManagedCluster applicant +is not accepted: .*\n +→ clusteradm accept --clusters applicant`); code != 0 || !want.MatchString(out) {
		t.Errorf("exit code %d, want %s in:\n%s", code, want, out)
	}
}

// A worker without the add-on is a warning: it can have the chart plimsoll-exporter.
func TestDoctorWarnsOfAMissingAddOn(t *testing.T) {
	files, err := txtar.ParseFile(filepath.Join("testdata", "script", "doctor.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files.Files {
		files.Files[i].Data = bytes.Replace(f.Data, []byte("kind: ManagedClusterAddOn\nmetadata: {name: plimsoll-exporter, namespace: cluster1}"), []byte("kind: ManagedClusterAddOn\nmetadata: {name: plimsoll-exporter, namespace: cluster9}"), 1)
	}
	code, out := runDoctor(t, files, "")
	if want := regexp.MustCompile(`(?m)^warning +add-on plimsoll-exporter of cluster1 +is not installed\n +→ .*kubectl describe clustermanagementaddon plimsoll-exporter`); code != 0 || !want.MatchString(out) {
		t.Errorf("exit code %d, want %s in:\n%s", code, want, out)
	}
}

// A worker whose Kueue exports no quota is a warning: the gate sends workloads there without regard
// to it. A gate with a quota query of its own does not read the series.
func TestDoctorWarnsOfMissingQuota(t *testing.T) {
	for _, tc := range []struct{ name, spec, want string }{
		{"default query", "sourceRef: {name: thanos}, multiKueue",
			`(?m)^warning +quota of workers +Kueue exports no quota of ClusterQueues on cluster1: gates send workloads there without regard to it\n +→ .*metrics\.enableClusterQueueResources: true`},
		{"own query", "queries: {quota: my_quota}, sourceRef: {name: thanos}, multiKueue", `exists for 1 cluster\n$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files, err := txtar.ParseFile(filepath.Join("testdata", "script", "doctor.txtar"))
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range files.Files {
				text := bytes.Replace(f.Data, []byte("cluster_queue:kueue_unreserved_quota:max{"), []byte("another{"), 1)
				files.Files[i].Data = bytes.Replace(text, []byte("sourceRef: {name: thanos}, multiKueue"), []byte(tc.spec), 1)
			}
			code, out := runDoctor(t, files, "")
			if code != 0 || !regexp.MustCompile(tc.want).MatchString(out) {
				t.Errorf("exit code %d, want %s in:\n%s", code, tc.want, out)
			}
		})
	}
}

// A cluster that no gate uses may have no accelerators. Without any metrics, all clusters have a fault.
func TestDoctorWarnsOfAClusterWithoutAccelerators(t *testing.T) {
	for _, tc := range []struct {
		name, history string
		code          int
		want          string
	}{
		{"a worker has metrics", "", 0, `(?m)^warning +cluster local-cluster +has no metrics of the exporter\n +→ none, if it has no accelerators; otherwise check`},
		{"no cluster has metrics", "load 1m\n  up 1x1440\n", 1, `(?m)^fault +cluster local-cluster +has no metrics of the exporter\n +→ check`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files, err := txtar.ParseFile(filepath.Join("testdata", "script", "doctor.txtar"))
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range files.Files {
				switch {
				case f.Name == "hub/plimsoll.yaml":
					files.Files[i].Data = append([]byte("apiVersion: cluster.open-cluster-management.io/v1\nkind: ManagedCluster\nmetadata: {name: local-cluster}\nspec: {hubAcceptsClient: true}\n---\n"), f.Data...)
				case f.Name == "history.txt" && tc.history != "":
					files.Files[i].Data = []byte(tc.history)
				}
			}
			code, out := runDoctor(t, files, "")
			if code != tc.code || !regexp.MustCompile(tc.want).MatchString(out) || strings.Contains(out, "quota of workers  Kueue exports no quota of ClusterQueues on local-cluster") {
				t.Errorf("exit code %d, want %d and %s in:\n%s", code, tc.code, tc.want, out)
			}
		})
	}
}

// runDoctor runs doctor against the files, and returns its exit code and output.
func runDoctor(t *testing.T, files *txtar.Archive, absent string) (int, string) {
	t.Helper()
	dir := t.TempDir()
	for _, f := range append(files.Files, txtar.File{Name: "absent", Data: []byte(absent)}) {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if f.Name == "absent" && absent == "" {
			continue
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hub, prometheus := httptest.NewServer(&fakeHub{dir: filepath.Join(dir, "hub")}), httptest.NewServer(prometheusHandler(dir))
	defer hub.Close()
	defer prometheus.Close()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: hub, clusters: [{name: hub, cluster: {server: "` + hub.URL + `"}}], contexts: [{name: hub, context: {cluster: hub}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"doctor", "--kubeconfig", kubeconfig, "--prometheus", prometheus.URL},
		genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, func() time.Time { return now })
	return code, out.String() + errOut.String()
}

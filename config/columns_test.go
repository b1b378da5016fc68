//go:build integration

package config_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// printerColumns contains the expected output of kubectl get for one object of each
// kind.
var printerColumns = []struct {
	plural, short, object string
	header, cells         []string
}{
	{
		"metricssources", "msrc", `
apiVersion: plimsoll.dev/v1alpha1
kind: MetricsSource
metadata: {name: thanos}
spec: {type: Thanos, url: "http://thanos-query.monitoring.svc:9090"}
status:
  lastSuccessTime: %[1]q
  conditions: [{type: Ready, status: "False", reason: Unreachable, message: no route, lastTransitionTime: %[1]q}]`,
		[]string{"Name", "Type", "URL", "Ready", "Reason", "Last success", "Age"},
		[]string{"thanos", "Thanos", "http://thanos-query.monitoring.svc:9090", "False", "Unreachable", "3h", "<age>"},
	},
	{
		"scoringpolicies", "spol", `
apiVersion: plimsoll.dev/v1alpha1
kind: ScoringPolicy
metadata: {name: fleet}
spec:
  sourceRef: {name: thanos}
  scores: [{name: free, query: free, normalize: {type: Identity}}]
status:
  lastRound: {time: %[1]q, durationMilliseconds: 21, clusters: 5, scored: 3, kept: 2, worst: 0, omitted: 0}
  conditions: [{type: Ready, status: "True", reason: Published, message: "", lastTransitionTime: %[1]q}]`,
		[]string{"Name", "Source", "Mode", "Ready", "Reason", "Scored", "Kept", "Last round", "Age"},
		[]string{"fleet", "thanos", "Enforce", "True", "Published", "3", "2", "3h", "<age>"},
	},
	{
		"placementgates", "pgate", `
apiVersion: plimsoll.dev/v1alpha1
kind: PlacementGate
metadata: {name: gpu}
spec: {placementRef: {namespace: plimsoll-system, name: gpus}, sourceRef: {name: thanos}}
status:
  candidates: 4
  waiting: 7
  conditions: [{type: Ready, status: "False", reason: NoDecision, message: wait, lastTransitionTime: %[1]q}]`,
		[]string{"Name", "Mode", "Placement", "Ready", "Reason", "Candidates", "Waiting", "Age"},
		[]string{"gpu", "Enforce", "gpus", "False", "NoDecision", "4", "7", "<age>"},
	},
	{
		"capacitypolicies", "cpol", `
apiVersion: plimsoll.dev/v1alpha1
kind: CapacityPolicy
metadata: {name: gpus}
spec: {sourceRef: {name: thanos}, cohortName: fleet, quotas: [{flavor: h100, resource: nvidia.com/gpu, query: usable}]}
status:
  conditions: [{type: Ready, status: "True", reason: QuotaFollows, message: "", lastTransitionTime: %[1]q}]`,
		[]string{"Name", "Cohort", "Mode", "Ready", "Reason", "Age"},
		[]string{"gpus", "fleet", "Enforce", "True", "QuotaFollows", "<age>"},
	},
	{
		"reclaimpolicies", "rpol", `
apiVersion: plimsoll.dev/v1alpha1
kind: ReclaimPolicy
metadata: {name: idle-gpus}
spec: {sourceRef: {name: thanos}, clusterQueues: [research], mode: Shadow}
status:
  reclaimable: 7
  idle: 2
  idleDevices: 16
  conditions: [{type: Ready, status: "True", reason: Shadow, message: "", lastTransitionTime: %[1]q}]`,
		[]string{"Name", "Mode", "Ready", "Reason", "Reclaimable", "Idle", "Age"},
		[]string{"idle-gpus", "Shadow", "True", "Shadow", "7", "2", "<age>"},
	},
	{
		"trialpolicies", "trial", `
apiVersion: plimsoll.dev/v1alpha1
kind: TrialPolicy
metadata: {name: gpu}
spec: {sourceRef: {name: thanos}, queueName: trials, priorityClassName: trial, models: [{name: NVIDIA-L4, nodeSelector: {model: NVIDIA-L4}}]}
status:
  copiesToday: 3
  conditions: [{type: Ready, status: "True", reason: Ready, message: "", lastTransitionTime: %[1]q}]`,
		[]string{"Name", "Ready", "Queue", "Copies today", "Age"},
		[]string{"gpu", "True", "trials", "3", "<age>"},
	},
	{
		"jobprofiles", "jprof", `
apiVersion: plimsoll.dev/v1alpha1
kind: JobProfile
metadata: {namespace: default, name: llama-7b}
status:
  keySource: Label
  label: llama-7b
  runs: 12
  lastRunTime: %[1]q
  models: [{model: h100, runs: 12, lastRunTime: %[1]q, class: Training, bottleneck: Compute}]`,
		[]string{"Name", "Key", "Runs", "Last run", "Age"},
		[]string{"llama-7b", "Label", "12", "3h", "<age>"},
	},
}

func TestPrinterColumns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	config, hub := startAPIServer(t, "crd")
	then := time.Now().Add(-3*time.Hour - 10*time.Second).UTC().Format(time.RFC3339)
	resources := metav1.APIResourceList{}
	gomega.NewWithT(t).Eventually(func() error { // the API server serves new CRDs with a delay
		return getJSON(ctx, config, "/apis/plimsoll.dev/v1alpha1", "application/json", &resources)
	}, time.Minute, 100*time.Millisecond).Should(gomega.Succeed())
	for _, want := range printerColumns {
		t.Run(want.plural, func(t *testing.T) {
			createWithStatus(ctx, t, hub, fmt.Sprintf(want.object, then))
			table := metav1.Table{}
			if err := getJSON(ctx, config, "/apis/plimsoll.dev/v1alpha1/"+want.plural, "application/json;as=Table;v=v1;g=meta.k8s.io", &table); err != nil {
				t.Fatal(err)
			}
			header, cells := []string{}, []string{}
			for i, column := range table.ColumnDefinitions {
				if column.Priority > 0 {
					continue
				}
				header = append(header, column.Name)
				cell := fmt.Sprint(table.Rows[0].Cells[i])
				if column.Name == "Age" {
					cell = "<age>"
				}
				cells = append(cells, cell)
			}
			if d := cmp.Diff(want.header, header); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(want.cells, cells); d != "" {
				t.Error(d)
			}
			for _, r := range resources.APIResources {
				if r.Name == want.plural && cmp.Diff([]string{want.short}, r.ShortNames)+cmp.Diff([]string{"plimsoll"}, r.Categories) != "" {
					t.Errorf("short names %v, categories %v", r.ShortNames, r.Categories)
				}
			}
		})
	}
}

// createWithStatus creates an object and then updates its status.
func createWithStatus(ctx context.Context, t *testing.T, hub client.Client, text string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	status := u.Object["status"]
	if err := hub.Create(ctx, u); err != nil {
		t.Fatal(err)
	}
	u.Object["status"] = status
	if err := hub.Status().Update(ctx, u); err != nil {
		t.Fatal(err)
	}
}

// getJSON sends a GET request to the API server and decodes the response.
func getJSON(ctx context.Context, config *rest.Config, path, accept string, into any) error {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", accept)
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

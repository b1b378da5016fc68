package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
)

var (
	shellCommand = regexp.MustCompile(`(?m)^(?:kubectl plimsoll|bin/kubectl-plimsoll) ([^#\n]+)`)
)

// readmeScripts are the scripts whose hub objects the commands of the README use.
var readmeScripts = []string{"explain_waiting.txtar", "explain_policy.txtar", "top.txtar", "preview.txtar", "quota.txtar", "profile.txtar", "connect.txtar", "report.txtar"}

const readmeHistory = `load 5m
  cluster:plimsoll_sample_timestamp_seconds:min{cluster="cluster1"} 1772280000+300x288
  cluster_resource:plimsoll_free_devices:sum{cluster="cluster1",resource="nvidia.com/gpu"} 32x288
  cluster_resource_model:plimsoll_free_devices:sum{cluster="cluster1",model="NVIDIA-L4"} 32x288
  cluster_resource_model:plimsoll_devices:sum{cluster="cluster1",model="NVIDIA-L4"} 64x288
  cluster:plimsoll_gpu_utilization:avg{cluster="cluster1"} 0.5x288
  node_resource_model:plimsoll_free_devices:placeable{cluster="cluster1",node="a",resource="nvidia.com/gpu",model="NVIDIA-H100-80GB-HBM3"} 16x288
`

// readmeQueue is the queue of config/samples/job.yaml.
const readmeQueue = `apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: gpu, namespace: team-a}
spec: {clusterQueue: gpu}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: gpu}
spec:
  admissionChecksStrategy: {admissionChecks: [{name: plimsoll}]}
  resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 64}]}]}]
`

// readmePrometheus is the Service that the commands find.
const readmePrometheus = `apiVersion: v1
kind: Service
metadata: {name: prometheus-operated, namespace: monitoring, labels: {operated-prometheus: "true"}}
spec: {clusterIP: None, ports: [{name: http-web, port: 9090}]}
`

// TestReadmeCommands runs every command of the README, and checks that the README shows
// every command of the plugin.
func TestReadmeCommands(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	script, shown := &txtar.Archive{}, map[string]bool{}
	text := "cd " + root + "\n"
	for _, m := range shellCommand.FindAllStringSubmatch(string(readme), -1) {
		words := strings.Fields(m[1])
		shown[words[0]] = true
		var args []string
		for _, w := range words {
			if strings.Contains(w, "*") {
				files, err := filepath.Glob(filepath.Join(root, w))
				if err != nil || len(files) == 0 {
					t.Errorf("%s: no file matches (%v)", w, err)
				}
				args = append(args, files...)
				continue
			}
			args = append(args, w)
		}
		run := "exec"
		if words[0] == "ui" {
			run = "serves"
		}
		if words[0] == "doctor" || words[0] == "uninstall" { // which find faults on the hub of the scripts
			run = "exits 1"
		}
		text += run + " kubectl-plimsoll " + strings.Join(args, " ") + "\n"
		if words[0] != "lint" && words[0] != "release" { // which print nothing to standard output
			text += "stdout .\n"
		}
	}
	for _, c := range newRoot(&command.App{Flags: genericclioptions.NewConfigFlags(true)}).Commands() {
		if !shown[c.Name()] {
			t.Errorf("README.md does not show %s", c.CommandPath())
		}
	}
	script.Comment = []byte(text)
	script.Files = append(script.Files, txtar.File{Name: "history.txt", Data: []byte(readmeHistory)}, txtar.File{Name: "hub/queue.yaml", Data: []byte(readmeQueue)},
		txtar.File{Name: "hub/prometheus.yaml", Data: []byte(readmePrometheus)}, txtar.File{Name: "services", Data: []byte("monitoring/services/http:prometheus-operated:9090\n")})
	for _, name := range readmeScripts {
		from, err := txtar.ParseFile(filepath.Join("testdata", "script", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range from.Files {
			if base, ok := strings.CutPrefix(f.Name, "hub/"); ok {
				script.Files = append(script.Files, txtar.File{Name: "hub/" + name + "-" + base, Data: f.Data})
			}
		}
	}
	file := filepath.Join(t.TempDir(), "readme.txtar")
	if err := os.WriteFile(file, txtar.Format(script), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Files: []string{file}, RequireExplicitExec: true, Setup: startServers,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": runExits, "serves": runServer}})
}

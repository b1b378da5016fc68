package charts

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The chart contains the objects of samples/hub, samples/team and addon, and with the settings for
// components of the add-on those of the components. Differences are the namespace, which is that of the release, and the templates of
// other platforms.
func TestFleetChartEqualsKustomize(t *testing.T) {
	const owners, claims = "addon/pod-owners", "addon/claim-shares"
	for _, tc := range []struct {
		platform   string
		components []string // of the add-on
	}{
		{"gpu-operator", nil}, {"gke", nil}, {"cdi", nil}, {"sim", nil},
		{"gpu-operator", []string{owners}}, {"gke", []string{claims}}, {"sim", []string{owners, claims}},
	} {
		platform := tc.platform
		t.Run(fmt.Sprint(platform, tc.components), func(t *testing.T) {
			want := map[string]any{}
			for folder, components := range map[string][]string{"samples/hub": nil, "samples/team": nil, "addon": tc.components} {
				objects, err := buildFolder(root, folder, components...)
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range objects {
					if o.kind() == "AddOnTemplate" && o.name() != addOnTemplates[platform] || o.kind() == "Namespace" && strings.HasPrefix(o.name(), "plimsoll-") {
						continue
					}
					if o.kind() == "ClusterManagementAddOn" {
						config := o["spec"].(map[string]any)["supportedConfigs"].([]any)[0].(map[string]any)["defaultConfig"].(map[string]any)
						config["name"] = addOnTemplates[platform]
					}
					renamed := inNamespace(map[string]any(o), "release").(map[string]any)
					want[key(renamed)] = prune(renamed)
				}
			}
			got := renderFleet(t, map[string]any{"exporter": map[string]any{
				"platform": platform, "podOwners": slices.Contains(tc.components, owners), "claimShares": slices.Contains(tc.components, claims),
			}})
			namespace := got["Namespace /team-a"].(map[string]any)["metadata"].(map[string]any)
			if a := namespace["annotations"].(map[string]any); a["helm.sh/resource-policy"] != "keep" {
				t.Errorf("Helm would delete the namespace of a team: %v", a)
			}
			delete(namespace, "annotations")
			compare(t, want, withoutHashes(t, got))
		})
	}
}

// withoutHashes removes the hash of their content from the names of the add-on's configurations, and the
// annotation that keeps old ones. It fails if the add-on names other configurations.
func withoutHashes(t *testing.T, objects map[string]any) map[string]any {
	t.Helper()
	plain := map[string]any{}
	for k, o := range objects {
		if !strings.HasPrefix(k, "AddOnTemplate ") && !strings.HasPrefix(k, "AddOnDeploymentConfig ") {
			plain[k] = o
			continue
		}
		metadata := o.(map[string]any)["metadata"].(map[string]any)
		name := metadata["name"].(string)
		if a, _ := metadata["annotations"].(map[string]any); a["helm.sh/resource-policy"] != "keep" {
			t.Errorf("Helm would delete %s before every cluster has its successor: %v", k, a)
		}
		delete(metadata, "annotations")
		if configs := addOnConfigs(objects); !slices.Contains(configs, name) {
			t.Errorf("the add-on names %v, and not %s", configs, name)
		}
		metadata["name"] = contentHash.ReplaceAllString(name, "")
		plain[key(o.(map[string]any))] = o
	}
	addOn := plain["ClusterManagementAddOn /plimsoll-exporter"].(map[string]any)
	for _, c := range addOn["spec"].(map[string]any)["supportedConfigs"].([]any) {
		config := c.(map[string]any)["defaultConfig"].(map[string]any)
		config["name"] = contentHash.ReplaceAllString(config["name"].(string), "")
	}
	return plain
}

var contentHash = regexp.MustCompile("-[0-9a-f]{8}$")

// addOnConfigs returns the names of the AddOnTemplate and the AddOnDeploymentConfig of the add-on.
func addOnConfigs(objects map[string]any) []string {
	var names []string
	addOn := objects["ClusterManagementAddOn /plimsoll-exporter"].(map[string]any)
	for _, c := range addOn["spec"].(map[string]any)["supportedConfigs"].([]any) {
		names = append(names, c.(map[string]any)["defaultConfig"].(map[string]any)["name"].(string))
	}
	return names
}

// OCM renders every cluster from the configurations as they are now. So a change has a new name, and
// reaches a cluster when the rollout does. Without a change, nothing is rolled out.
func TestChangedAddOnHasANewName(t *testing.T) {
	configs := func(values map[string]any) []string {
		objects := renderFleet(t, values)
		names := addOnConfigs(objects)
		if objects["AddOnTemplate /"+names[0]] == nil || objects["AddOnDeploymentConfig release/"+names[1]] == nil {
			t.Fatalf("the add-on names %v in %v", names, slices.Sorted(maps.Keys(objects)))
		}
		return names
	}
	exporter := func(key string, value any) map[string]any {
		return map[string]any{"exporter": map[string]any{key: value}}
	}
	first := configs(nil)
	if first[0] == "plimsoll-exporter" || first[1] == "plimsoll-exporter" {
		t.Errorf("names without a hash: %v", first)
	}
	for name, tc := range map[string]struct {
		values              map[string]any
		newTemplate, newSet bool
	}{
		"same":        {map[string]any{"namespaces": []any{"team-b"}}, false, false},
		"digest":      {map[string]any{"image": map[string]any{"digest": "sha256:" + strings.Repeat("a", 64)}}, true, false},
		"pull secret": {map[string]any{"imagePullSecrets": []any{map[string]any{"name": "registry"}}}, true, false},
		"pod owners":  {exporter("podOwners", true), true, false},
		"interval":    {exporter("collectIntervalMilliseconds", 5000), false, true},
	} {
		if got := configs(tc.values); (got[0] != first[0]) != tc.newTemplate || (got[1] != first[1]) != tc.newSet {
			t.Errorf("%s: %v after %v", name, got, first)
		}
	}
}

// inNamespace replaces the namespaces of the kustomize folders in an object.
func inNamespace(v any, namespace string) any {
	switch x := v.(type) {
	case map[string]any:
		replaced := map[string]any{}
		for k, child := range x {
			if k == "namespace" && (child == "plimsoll-fleet" || child == "plimsoll-addon") {
				child = namespace
			}
			replaced[k] = inNamespace(child, namespace)
		}
		return replaced
	case []any:
		var replaced []any
		for _, child := range x {
			replaced = append(replaced, inNamespace(child, namespace))
		}
		return replaced
	}
	return v
}

func renderFleet(t *testing.T, values map[string]any) map[string]any {
	t.Helper()
	files, err := renderChart("plimsoll-fleet", "release", values)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := parse(files)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// The ManifestWork of each worker has the objects of samples/worker, samples/team and
// prometheus/worker, and the permission of OCM's work agent to write them.
func TestFleetChartWorkers(t *testing.T) {
	want := map[string]any{}
	for _, folder := range []string{"samples/worker", "samples/team", "prometheus/worker"} {
		objects, err := buildFolder(root, folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			want[key(o)] = prune(o)
		}
	}
	objects := renderFleet(t, map[string]any{"workers": []any{"cluster1", "cluster2"}, "monitoring": map[string]any{"enabled": true}})
	for _, worker := range []string{"cluster1", "cluster2"} {
		work, ok := objects["ManifestWork "+worker+"/plimsoll-fleet"].(map[string]any)
		if !ok {
			t.Fatalf("%s has no ManifestWork", worker)
		}
		spec := work["spec"].(map[string]any)
		got := map[string]any{}
		for _, m := range spec["workload"].(map[string]any)["manifests"].([]any) {
			manifest := object(m.(map[string]any))
			if annotations, ok := manifest["metadata"].(map[string]any)["annotations"]; ok && manifest.kind() == "Namespace" {
				t.Errorf("annotations of Helm on a worker: %v", annotations)
			}
			got[key(manifest)] = manifest
		}
		checkOrphans(t, spec["deleteOption"], slices.Collect(maps.Keys(got)))
		role := fmt.Sprint(got["ClusterRole /plimsoll-fleet-work"])
		for _, want := range []string{"aggregate-to-work:true", "clusterqueues", "prometheusrules"} {
			if !strings.Contains(role, want) {
				t.Errorf("no %q in %s", want, role)
			}
		}
		delete(got, "ClusterRole /plimsoll-fleet-work")
		for k, o := range got {
			got[k] = prune(map[string]any(o.(object)))
		}
		compare(t, want, got)
		if applied := spec["manifestConfigs"].([]any); len(applied) != 5 { // a queue, three flavors, a local queue
			t.Errorf("server-side apply of %v", applied)
		}
	}
}

// checkOrphans checks what OCM's work agent deletes on the worker when an object leaves the work, or the
// work is deleted: the objects of monitoring. Jobs need the others, and the agent needs its role.
func checkOrphans(t *testing.T, option any, manifests []string) {
	t.Helper()
	stays := map[string]bool{}
	rules, _ := option.(map[string]any)["selectivelyOrphans"].(map[string]any)
	list, _ := rules["orphaningRules"].([]any)
	kinds := map[string]string{"rbac.authorization.k8s.io/clusterroles": "ClusterRole", "kueue.x-k8s.io/clusterqueues": "ClusterQueue",
		"kueue.x-k8s.io/resourceflavors": "ResourceFlavor", "kueue.x-k8s.io/localqueues": "LocalQueue", "/namespaces": "Namespace"}
	for _, r := range list {
		rule := r.(map[string]any)
		group, _ := rule["group"].(string)
		namespace, _ := rule["namespace"].(string)
		stays[fmt.Sprintf("%s %s/%s", kinds[group+"/"+rule["resource"].(string)], namespace, rule["name"])] = true
	}
	if policy := option.(map[string]any)["propagationPolicy"]; policy != "SelectivelyOrphan" {
		t.Errorf("the policy %v keeps all objects, or none", policy)
	}
	for _, k := range manifests {
		kind, _, _ := strings.Cut(k, " ")
		isMonitoring := kind == "PodMonitor" || kind == "ServiceMonitor" || kind == "PrometheusRule"
		if isMonitoring == stays[k] {
			t.Errorf("%s: stays %t", k, stays[k])
		}
	}
	if len(stays) == 0 || len(stays) >= len(manifests) {
		t.Errorf("%d of %d objects stay", len(stays), len(manifests))
	}
}

// After monitoring was turned off, the work agent needs the permissions to delete its objects,
// and to read that they are gone.
func TestWorkRoleWithoutMonitoring(t *testing.T) {
	objects := renderFleet(t, map[string]any{"workers": []any{"cluster1"}, "monitoring": map[string]any{"enabled": false}})
	work := fmt.Sprint(objects["ManifestWork cluster1/plimsoll-fleet"])
	if !strings.Contains(work, "podmonitors") || strings.Contains(work, "PodMonitor") {
		t.Errorf("want the role for PodMonitors and no PodMonitor in %s", work)
	}
}

// Values reach the hub and the workers.
func TestFleetChartOptions(t *testing.T) {
	files, err := renderChart("plimsoll-fleet", "release", map[string]any{
		"image":  map[string]any{"repository": "registry.example.com/ex", "digest": "sha256:" + strings.Repeat("a", 64)},
		"source": map[string]any{"type": "Prometheus", "url": "", "fields": map[string]any{"tenant": "prod", "urlTemplate": "https://{cluster}.example.com"}},
		"queue": map[string]any{"name": "accelerators", "flavors": []any{
			map[string]any{"name": "mi300x", "quota": map[string]any{"amd.com/gpu": 64, "cpu": "2k"}},
		}},
		"clusterSets": []any{"prod", "test"}, "workers": []any{"w1"}, "namespaces": []any{"a", "b"}, "createNamespaces": false,
		"credentials": map[string]any{"type": "ClusterProfile", "nameTemplate": ""},
		"exporter":    map[string]any{"kubeletRoot": "/data/kubelet", "collectIntervalMilliseconds": 5000, "platform": "sim"},
	})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := parse(files)
	if err != nil {
		t.Fatal(err)
	}
	objects = withoutHashes(t, objects)
	for k, wants := range map[string][]string{
		"MetricsSource /thanos":                           {"tenant:prod", "type:Prometheus", "urlTemplate:https://{cluster}.example.com"},
		"ClusterQueue /accelerators":                      {"coveredResources:[amd.com/gpu cpu]", "name:mi300x", "nominalQuota:64", "nominalQuota:2k", "queue-role:hub"},
		"LocalQueue a/accelerators":                       {"clusterQueue:accelerators"},
		"LocalQueue b/accelerators":                       nil,
		"ManagedClusterSetBinding release/prod":           {"clusterSet:prod"},
		"ManagedClusterSetBinding release/test":           nil,
		"Placement release/gpu":                           {"clusterSets:[prod test]"},
		"Placement release/plimsoll-exporter":             {"clusterSets:[prod test]"},
		"PlacementGate /gpu":                              {"credentials:map[nameTemplate: type:ClusterProfile]"},
		"AddOnDeploymentConfig release/plimsoll-exporter": {"value:/data/kubelet", "value:5000"},
		"AddOnTemplate /plimsoll-exporter-sim":            {"registry.example.com/ex@sha256:aaa", "{{COLLECT_INTERVAL_MS}}"},
		"ManifestWork w1/plimsoll-fleet":                  {"name:accelerators", "name:mi300x", "nominalQuota:64", "queue-role:worker", "namespace:b"},
	} {
		text := fmt.Sprint(objects[k])
		if objects[k] == nil {
			t.Errorf("no %s in %v", k, slices.Sorted(maps.Keys(objects)))
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q: %s", k, want, text)
			}
		}
	}
	if strings.Contains(fmt.Sprint(objects["ManifestWork w1/plimsoll-fleet"]), "Namespace") || objects["Namespace /a"] != nil {
		t.Error("createNamespaces does not apply")
	}
}

// `connect` connects workers by Secrets only. With other credentials, it skips them.
func TestFleetNotesByCredentials(t *testing.T) {
	for name, want := range map[string]string{
		"Secret":         "\n   kubectl plimsoll connect w1=CONTEXT --dispatcher=plimsoll.dev/dispatcher\n",
		"ClusterProfile": "\n   kubectl plimsoll connect --dispatcher=plimsoll.dev/dispatcher\n",
	} {
		files, err := renderChart("plimsoll-fleet", "release", map[string]any{"workers": []any{"w1"}, "credentials": map[string]any{"type": name}})
		if err != nil {
			t.Fatal(err)
		}
		if notes := files["plimsoll-fleet/templates/NOTES.txt"]; !strings.Contains(notes, want) {
			t.Errorf("%s: notes:\n%s", name, notes)
		}
	}
}

// KAI Scheduler shares NVIDIA GPUs, so only their exporter gets the argument.
func TestFleetChartWithKAI(t *testing.T) {
	objects := renderFleet(t, map[string]any{"exporter": map[string]any{"podOwners": true, "kaiShares": true}})
	for k, o := range objects {
		if count := strings.Count(fmt.Sprint(o), "--kubernetes-kai-shares"); strings.HasPrefix(k, "AddOnTemplate ") != (count == 1) {
			t.Errorf("%s has the argument %d times", k, count)
		}
	}
	if _, err := renderChart("plimsoll-fleet", "release", map[string]any{"exporter": map[string]any{"kaiShares": true}}); err == nil {
		t.Error("kaiShares is accepted without podOwners")
	}
}

func TestUnknownValuesOfTheFleetAreRefused(t *testing.T) {
	for _, values := range []map[string]any{
		{"source": map[string]any{"uri": "http://x"}}, {"queue": map[string]any{"flavor": []any{}}}, {"workers": "cluster1"}, {"workers": []any{"Cluster 1"}},
		{"queue": map[string]any{"flavors": []any{}}}, {"queue": map[string]any{"flavors": []any{map[string]any{"name": "a", "label": "x", "quota": map[string]any{"cpu": 1}}}}},
		{"exporter": map[string]any{"platform": "aws"}},
	} {
		if _, err := renderChart("plimsoll-fleet", "release", values); err == nil {
			t.Errorf("%v is accepted", values)
		}
	}
}

// The sample of the values is valid.
func TestFleetSample(t *testing.T) {
	objects := renderFleet(t, readValues(t, filepath.Join(root, "config", "samples", "fleet.yaml")))
	if objects["ManifestWork cluster1/plimsoll-fleet"] == nil {
		t.Errorf("no ManifestWork for cluster1 in %v", slices.Sorted(maps.Keys(objects)))
	}
}

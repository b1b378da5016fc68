package charts

import (
	"slices"
	"strings"
	"testing"
)

// The policies of a chart select its own pods and no others, because the release may be in a namespace
// that has other pods, such as that of Prometheus or of the GPU operator. Each pod of the chart is
// isolated in both directions.
func TestNetworkPoliciesSelectOwnPods(t *testing.T) {
	enabled := map[string]any{"enabled": true}
	for name, values := range map[string]map[string]any{
		"plimsoll":          nil,
		"plimsoll-exporter": {"podOwners": enabled, "claimShares": enabled, "tpu": enabled, "amd": enabled},
	} {
		objects := render(t, name, values)
		isolated := map[string]bool{}
		for k, o := range objects {
			if !strings.HasPrefix(k, "NetworkPolicy ") {
				continue
			}
			spec := o.(map[string]any)["spec"].(map[string]any)
			apps := selectedApps(spec["podSelector"])
			if len(apps) == 0 {
				t.Errorf("%s: %s selects every pod of the namespace", name, k)
			}
			for _, app := range apps {
				isolated[app] = isolated[app] || len(spec["policyTypes"].([]any)) == 2
			}
		}
		pods := podApps(objects)
		if len(pods) == 0 {
			t.Errorf("%s has no pods", name)
		}
		for _, app := range pods {
			if !isolated[app] {
				t.Errorf("%s: no NetworkPolicy isolates the pods of %s", name, app)
			}
		}
		for app := range isolated {
			if !slices.Contains(pods, app) {
				t.Errorf("%s: a NetworkPolicy selects pods of %s, which the chart does not have", name, app)
			}
		}
	}
}

const appLabel = "app.kubernetes.io/name"

// selectedApps returns the names of the applications that a label selector requires. It returns none
// for a selector that does not require a name.
func selectedApps(selector any) []string {
	s, _ := selector.(map[string]any)
	labels, _ := s["matchLabels"].(map[string]any)
	if app, ok := labels[appLabel].(string); ok {
		return []string{app}
	}
	var apps []string
	expressions, _ := s["matchExpressions"].([]any)
	for _, e := range expressions {
		if x := e.(map[string]any); x["key"] == appLabel && x["operator"] == "In" {
			for _, app := range x["values"].([]any) {
				apps = append(apps, app.(string))
			}
		}
	}
	return apps
}

// podApps returns the names of the applications in the pod templates.
func podApps(objects map[string]any) []string {
	var apps []string
	for k, o := range objects {
		if strings.HasPrefix(k, "Deployment ") || strings.HasPrefix(k, "DaemonSet ") {
			template := o.(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)
			apps = append(apps, template["metadata"].(map[string]any)["labels"].(map[string]any)[appLabel].(string))
		}
	}
	return apps
}

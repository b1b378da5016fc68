//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// addOnOverlay is a kustomize folder over config/addon, as a user writes one.
type addOnOverlay struct{ text string }

// newAddOnOverlay returns an overlay that changes nothing.
func newAddOnOverlay() *addOnOverlay {
	return &addOnOverlay{text: "resources: [config/addon]\npatches:\n"}
}

// newRenamedAddOnOverlay returns the example of config/README.md with other names for the
// AddOnTemplate and the AddOnDeploymentConfig, and with components of config/addon.
func newRenamedAddOnOverlay(t *testing.T, name string, components ...string) *addOnOverlay {
	t.Helper()
	document, err := os.ReadFile(filepath.Join(configFolder(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(document), "```yaml\nresources: [config/addon]\n")
	example, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed || !strings.Contains(example, "plimsoll-exporter-2") {
		t.Fatal("config/README.md has no kustomization of the add-on that renames objects to plimsoll-exporter-2")
	}
	o := &addOnOverlay{text: "resources: [config/addon]\n"}
	o.text += "components: [config/addon/" + strings.Join(components, ", config/addon/") + "]\n"
	o.text += strings.ReplaceAll(example, "plimsoll-exporter-2", name)
	return o
}

// set adds a JSON patch that sets a field of the objects of a kind.
func (o *addOnOverlay) set(kind, path, value string) {
	o.text += fmt.Sprintf("- target: {kind: %s}\n  patch: '- {op: add, path: %s, value: %s}'\n", kind, path, value)
}

// setRegistry sets the registry and the interval of all clusters.
func (o *addOnOverlay) setRegistry(mirror, interval string) {
	o.set("AddOnDeploymentConfig", "/spec/registries", "[{source: plimsoll-exporter, mirror: "+mirror+"}]")
	o.set("AddOnDeploymentConfig", "/spec/customizedVariables/1/value", `"`+interval+`"`)
}

// setRollout sets a field of the rollout strategy.
func (o *addOnOverlay) setRollout(field, value string) {
	o.set("ClusterManagementAddOn", "/spec/installStrategy/placements/0/rolloutStrategy/progressive/"+field, value)
}

// apply applies the folder to the hub.
func (o *addOnOverlay) apply(ctx context.Context, t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	relative, err := filepath.Rel(dir, "/")
	if err != nil {
		t.Fatal(err)
	}
	// kustomize does not accept absolute paths.
	text := strings.NewReplacer("[config", "["+relative+configFolder(t), " config/addon", " "+relative+configFolder(t)+"/addon").Replace(o.text)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(ctx, t, "apply", "--server-side", "-k", dir)
}

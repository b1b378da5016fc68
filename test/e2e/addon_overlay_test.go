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

func newAddOnOverlay(t *testing.T, components ...string) *addOnOverlay {
	t.Helper()
	base := filepath.Join(configFolder(t), "addon")
	o := &addOnOverlay{text: "resources: [" + base + "]\n"}
	for _, component := range components {
		o.text += "components: [" + filepath.Join(base, component) + "]\n"
	}
	o.text += "patches:\n"
	return o
}

// set adds a JSON patch that sets a field of the objects of a kind.
func (o *addOnOverlay) set(kind, path, value string) {
	o.text += fmt.Sprintf("- target: {kind: %s}\n  patch: '- {op: add, path: %s, value: %s}'\n", kind, path, value)
}

// rename gives the AddOnTemplate and the AddOnDeploymentConfig new names, as config/README.md
// says.
func (o *addOnOverlay) rename(name string) {
	const text = `- target: {kind: AddOnTemplate|AddOnDeploymentConfig, name: plimsoll-exporter}
  options: {allowNameChange: true}
  patch: '- {op: replace, path: /metadata/name, value: NAME}'
- target: {kind: ClusterManagementAddOn}
  patch: |
    - {op: replace, path: /spec/supportedConfigs/0/defaultConfig/name, value: NAME}
    - {op: replace, path: /spec/supportedConfigs/1/defaultConfig/name, value: NAME}
`
	o.text += strings.ReplaceAll(text, "NAME", name)
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
	text := strings.ReplaceAll(o.text, "["+configFolder(t), "["+relative+configFolder(t))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(ctx, t, "apply", "--server-side", "-k", dir)
}

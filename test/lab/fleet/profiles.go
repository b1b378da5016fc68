package fleet

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"plimsoll.dev/plimsoll/test/lab/components"
)

// profileProvider is the name of the access provider in the ClusterProfiles.
const profileProvider = "lab"

// UseClusterProfiles creates a ClusterProfile for each worker, and configures the
// hub's Kueue to get credentials from a plugin instead of a Secret.
func (f *Fleet) UseClusterProfiles(ctx context.Context) error {
	dir, err := components.SourceDir(ctx, f.opts.Root, "shared", "sigs.k8s.io/cluster-inventory-api")
	if err != nil {
		return err
	}
	crd, err := os.ReadFile(filepath.Join(dir, "config", "crd", "bases", "multicluster.x-k8s.io_clusterprofiles.yaml"))
	if err != nil {
		return fmt.Errorf("read the CRD of ClusterProfile: %w", err)
	}
	if err := f.Hub.Apply(ctx, string(crd)); err != nil {
		return err
	}
	if _, err := f.Hub.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=60s", "crd/clusterprofiles.multicluster.x-k8s.io"); err != nil {
		return err
	}
	for _, w := range f.Workers {
		if err := f.createProfile(ctx, w); err != nil {
			return err
		}
	}
	plugin, err := f.writeCredentialPlugin()
	if err != nil {
		return err
	}
	return f.SetDispatcher(ctx, f.opts.Dispatcher, fmt.Sprintf(`  clusterProfile:
    accessProviders:
    - name: %s
      execConfig: {apiVersion: client.authentication.k8s.io/v1, command: %q, interactiveMode: Never}
featureGates: {MultiKueueClusterProfile: true}`, profileProvider, plugin))
}

func (f *Fleet) createProfile(ctx context.Context, w *Cluster) error {
	if err := f.Hub.Apply(ctx, fmt.Sprintf(`
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ClusterProfile
metadata: {name: %s, namespace: %s}
spec: {clusterManager: {name: lab}}
`, w.Name, kueueNamespace)); err != nil {
		return err
	}
	access := map[string]any{"name": profileProvider, "cluster": map[string]any{
		"server": w.server, "certificate-authority-data": base64.StdEncoding.EncodeToString(f.ca.pem)}}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"accessProviders": []any{access}}})
	if err != nil {
		return err
	}
	_, err = f.Hub.Kubectl(ctx, "", "patch", "clusterprofile/"+w.Name, "-n", kueueNamespace, "--subresource=status", "--type=merge", "-p", string(patch))
	return err
}

// writeCredentialPlugin writes a program that prints administrator credentials for
// all clusters of the fleet. It returns the program's path.
func (f *Fleet) writeCredentialPlugin() (string, error) {
	admin, err := f.ca.issue("lab-admin", []string{"system:masters"})
	if err != nil {
		return "", err
	}
	credential, err := json.Marshal(map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
		"status": map[string]any{"clientCertificateData": string(admin.cert), "clientKeyData": string(admin.key)}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(f.opts.Dir, "pki", "credential-plugin")
	return path, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\ncat <<'EOF'\n%s\nEOF\n", credential), 0o700)
}

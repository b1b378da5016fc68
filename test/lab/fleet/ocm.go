package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/test/lab/components"
)

// startPlacement installs OCM's CRDs on the hub and runs OCM's placement controller.
func (c *Cluster) startPlacement(ctx context.Context) error {
	if err := c.applyOCMCRDs(ctx, "cluster"); err != nil {
		return err
	}
	if err := c.Apply(ctx, placementObjects); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	return c.fleet.procs.Run(ctx, program{
		name: c.Name + "-ocm-placement", path: c.fleet.bin.Path("placement"),
		args:  []string{"--kubeconfig=" + c.Kubeconfig, "--listen=" + addr},
		ready: httpReady("http://"+addr+"/healthz", httpPlain),
	})
}

// applyOCMCRDs applies the CRDs of an API group of OCM.
func (c *Cluster) applyOCMCRDs(ctx context.Context, group string) error {
	dir, err := components.SourceDir(ctx, c.fleet.opts.Root, "", "open-cluster-management.io/api")
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, group, "v*", "*.crd.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no OCM CRDs of %s in %s", group, dir)
	}
	var crds []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crds = append(crds, string(content))
	}
	if err := c.Apply(ctx, strings.Join(crds, "\n---\n")); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	return err
}

// placementObjects contains the ManagedClusterSet of all clusters, which OCM's
// registration controller creates on a real hub.
const placementObjects = `
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata: {name: global}
spec:
  clusterSelector:
    selectorType: LabelSelector
    labelSelector: {}
`

// registerWorker creates the worker's namespace on the hub and its ManagedCluster,
// accepted and available.
func (c *Cluster) registerWorker(ctx context.Context, worker string) error {
	managed := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: worker, Labels: map[string]string{"vendor": "lab"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: 60},
	}
	if err := c.Client.Create(ctx, managed); err != nil {
		return fmt.Errorf("register %s: %w", worker, err)
	}
	for _, condition := range []string{clusterv1.ManagedClusterConditionHubAccepted, clusterv1.ManagedClusterConditionJoined, clusterv1.ManagedClusterConditionAvailable} {
		meta.SetStatusCondition(&managed.Status.Conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: "Lab", Message: "Set by the lab, which runs no registration agent",
			LastTransitionTime: metav1.NewTime(time.Now())})
	}
	if err := c.Client.Status().Update(ctx, managed); err != nil {
		return fmt.Errorf("register %s: %w", worker, err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: worker}}
	if err := c.Client.Create(ctx, namespace); err != nil {
		return fmt.Errorf("namespace of %s: %w", worker, err)
	}
	return nil
}

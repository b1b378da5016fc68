//go:build e2e && long

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const (
	addOn     = "plimsoll-exporter" // also its namespace on the workers
	addOnHome = "plimsoll-addon"    // namespace on the hub
)

// TestAddOn installs, changes and removes config/addon with OCM's own registration, add-on
// manager and work agent. No kubelet starts the pods, so it does not show that the image
// runs.
func TestAddOn(t *testing.T) {
	ctx := testContext(t, 20*time.Minute)
	if err := lab.StartOCM(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleanUp(t, func(context.Context) error { return lab.StopOCM() }) })
	prepareNodes(ctx, t)
	works := watchWorks(ctx, t)

	kubectl(ctx, t, "apply", "--server-side", "-k", filepath.Join(configFolder(t), "addon"))
	t.Cleanup(func() { cleanUp(t, removeAddOn) })
	awaitExporter(ctx, t, "plimsoll-exporter:dev", "10000", workers()...)
	awaitAddOnAvailable(ctx, t)
	for _, violation := range works.outOfTurn(t) {
		t.Error(violation)
	}

	// A change of the same objects reaches all clusters, but OCM does not keep their order.
	changed := newAddOnOverlay()
	changed.setRollout("minSuccessTime", "1s")
	changed.setRegistry("registry.example.com/plimsoll-exporter", "5000")
	changed.apply(ctx, t)
	awaitExporter(ctx, t, "registry.example.com/plimsoll-exporter:dev", "5000", workers()...)

	works.reset()
	renamed := newRenamedAddOnOverlay(t, "plimsoll-exporter-2", "pod-monitor", "pod-owners", "claim-shares")
	renamed.setRollout("minSuccessTime", "1s")
	renamed.setRegistry("second.example.com/plimsoll-exporter", "5000")
	renamed.apply(ctx, t)
	awaitPodMonitor(ctx, t, workers()[0])
	renderAddOns(ctx, t)
	awaitExporter(ctx, t, "second.example.com/plimsoll-exporter:dev", "5000", workers()...)
	for _, worker := range workers() {
		awaitPodMonitor(ctx, t, worker)
		awaitReading(ctx, t, worker, true)
	}
	for _, violation := range works.outOfTurn(t) {
		t.Error(violation)
	}

	unreachable, reachable := workers()[0], workers()[1:]
	if err := lab.PauseOCMAgent(unreachable); err != nil {
		t.Fatal(err)
	}
	third := newRenamedAddOnOverlay(t, "plimsoll-exporter-3", "pod-monitor/role")
	third.setRollout("minSuccessTime", "1s")
	third.setRollout("progressDeadline", "5s")
	third.setRegistry("third.example.com/plimsoll-exporter", "5000")
	third.apply(ctx, t)
	awaitExporter(ctx, t, "third.example.com/plimsoll-exporter:dev", "5000", reachable...)
	if err := checkExporter(ctx, unreachable, "second.example.com/plimsoll-exporter:dev", "5000"); err != nil {
		t.Errorf("without its agent, the exporter changed: %v", err)
	}
	if err := lab.ResumeOCMAgent(unreachable); err != nil {
		t.Fatal(err)
	}
	awaitExporter(ctx, t, "third.example.com/plimsoll-exporter:dev", "5000", unreachable)
	for _, worker := range workers() {
		awaitNoPodMonitor(ctx, t, worker)
		awaitReading(ctx, t, worker, false)
	}

	if err := removeAddOn(ctx); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "all objects of the add-on to be deleted", checkNoAddOn)
}

func workers() []string {
	var names []string
	for _, w := range lab.Workers {
		names = append(names, w.Name)
	}
	return names
}

// addOnNodes are what the GPU operator and prometheus-operator bring.
const addOnNodes = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PodMonitor, plural: podmonitors, singular: podmonitor}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// prepareNodes makes the nodes of the workers look like those of the GPU operator until the
// end of the test.
func prepareNodes(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, w := range lab.Workers {
		if err := w.Apply(ctx, addOnNodes); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cleanUp(t, func(ctx context.Context) error {
				_, err := w.Kubectl(ctx, addOnNodes, "delete", "-f", "-")
				_, unlabel := w.Kubectl(ctx, "", "label", "node", "--all", "nvidia.com/gpu.present-")
				return errors.Join(err, unlabel)
			})
		})
		if _, err := w.Kubectl(ctx, "", "label", "node", "--all", "nvidia.com/gpu.present=true"); err != nil {
			t.Fatal(err)
		}
	}
}

// renderAddOns makes OCM render the add-on of each worker again.
func renderAddOns(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, worker := range workers() {
		kubectl(ctx, t, "annotate", "managedclusteraddon", addOn, "-n", worker, "--overwrite", "rendered=again")
	}
}

func awaitPodMonitor(ctx context.Context, t *testing.T, worker string) {
	t.Helper()
	await(ctx, t, "the PodMonitor on "+worker, func(ctx context.Context) error {
		_, err := lab.Worker(worker).Kubectl(ctx, "", "get", "podmonitor", addOn, "-n", addOn)
		return err
	})
}

// awaitReading waits until the exporters of a worker may read the pods of all namespaces and the
// ResourceSlices, and have the flags for that, or until they have neither.
func awaitReading(ctx context.Context, t *testing.T, worker string, want bool) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("the exporters of %s to read pods and ResourceSlices (%v)", worker, want), func(ctx context.Context) error {
		sets := &appsv1.DaemonSetList{}
		if err := lab.Worker(worker).Client.List(ctx, sets, client.InNamespace(addOn)); err != nil {
			return err
		}
		for _, set := range sets.Items {
			pod := set.Spec.Template.Spec
			for _, got := range []bool{
				ptr.Deref(pod.AutomountServiceAccountToken, false),
				slices.Contains(pod.Containers[0].Args, "--kubernetes-pod-owners"), slices.Contains(pod.Containers[0].Args, "--kubernetes-claim-shares"),
			} {
				if got != want {
					return fmt.Errorf("%s: token %v, arguments %v", set.Name, pod.AutomountServiceAccountToken, pod.Containers[0].Args)
				}
			}
		}
		for _, resource := range []string{"pods", "resourceslices.resource.k8s.io"} {
			// kubectl exits with 1 if it prints no.
			out, err := lab.Worker(worker).Kubectl(ctx, "", "auth", "can-i", "list", resource, "-A", "--as=system:serviceaccount:"+addOn+":"+addOn)
			if got := strings.TrimSpace(out) == "yes"; got != want {
				return fmt.Errorf("may list %s: %v, %w", resource, got, err)
			}
		}
		return nil
	})
}

// awaitNoPodMonitor waits until OCM's work agent has seen that the PodMonitor is deleted.
func awaitNoPodMonitor(ctx context.Context, t *testing.T, worker string) {
	t.Helper()
	await(ctx, t, "the agent of "+worker+" to delete the PodMonitor", func(ctx context.Context) error {
		out, err := lab.Worker(worker).Kubectl(ctx, "", "get", "appliedmanifestworks", "-o", "jsonpath={.items[*].status.appliedResources[*].resource}")
		if err == nil && (!strings.Contains(out, "daemonsets") || strings.Contains(out, "podmonitors")) {
			err = fmt.Errorf("applied resources: %s", out)
		}
		return err
	})
}

func awaitExporter(ctx context.Context, t *testing.T, image, interval string, clusters ...string) {
	t.Helper()
	for _, cluster := range clusters {
		await(ctx, t, fmt.Sprintf("%s to have %s", cluster, image), func(ctx context.Context) error {
			return checkExporter(ctx, cluster, image, interval)
		})
	}
}

// checkExporter returns an error unless the DaemonSet for NVIDIA has the image and the
// interval, and a ready pod on each node, and those for other devices have no pods.
func checkExporter(ctx context.Context, cluster, image, interval string) error {
	sets := &appsv1.DaemonSetList{}
	if err := lab.Worker(cluster).Client.List(ctx, sets, client.InNamespace(addOn)); err != nil {
		return err
	}
	if len(sets.Items) != 3 {
		return fmt.Errorf("%d DaemonSets", len(sets.Items))
	}
	nodes := 0
	for _, w := range fleet.DefaultWorkers() {
		if w.Name == cluster {
			nodes = len(w.Nodes)
		}
	}
	for _, set := range sets.Items {
		container, want := set.Spec.Template.Spec.Containers[0], 0
		if set.Name == addOn {
			want = nodes
		}
		if container.Image != image || !slices.Contains(container.Args, "--collect-interval="+interval) ||
			int(set.Status.UpdatedNumberScheduled) != want || int(set.Status.NumberReady) != want || set.Status.ObservedGeneration != set.Generation {
			return fmt.Errorf("%s on %s: %s %v %+v, want %d ready pods", set.Name, cluster, container.Image, container.Args, set.Status, want)
		}
	}
	return nil
}

// awaitAddOnAvailable waits until OCM reports the add-on of each worker as available.
func awaitAddOnAvailable(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, worker := range workers() {
		await(ctx, t, "the add-on of "+worker+" to be available", func(ctx context.Context) error {
			installed := &addonv1alpha1.ManagedClusterAddOn{}
			err := lab.Hub.Client.Get(ctx, client.ObjectKey{Namespace: worker, Name: addOn}, installed)
			if err == nil && !meta.IsStatusConditionTrue(installed.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable) {
				err = fmt.Errorf("%+v", installed.Status.Conditions)
			}
			return err
		})
	}
}

// removeAddOn deletes config/addon and the objects of earlier names from the hub.
func removeAddOn(ctx context.Context) error {
	root, err := fleet.FindRoot()
	if err != nil {
		return err
	}
	_, err = lab.Hub.Kubectl(ctx, "", "delete", "--ignore-not-found", "-k", filepath.Join(root, "config", "addon"))
	_, renamed := lab.Hub.Kubectl(ctx, "", "delete", "--ignore-not-found", "addontemplate", addOn+"-2", addOn+"-3")
	return errors.Join(err, renamed)
}

// checkNoAddOn returns an error if the hub or a worker has an object of the add-on.
func checkNoAddOn(ctx context.Context) error {
	var left []string
	list := func(c *fleet.Cluster, kinds string) error {
		out, err := c.Kubectl(ctx, "", "get", kinds, "-A", "-o", `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
		for line := range strings.Lines(out) {
			if strings.Contains(line, addOn) || strings.Contains(line, addOnHome) {
				left = append(left, c.Name+": "+strings.TrimSpace(line))
			}
		}
		return err
	}
	err := list(lab.Hub, "clustermanagementaddons,managedclusteraddons,addontemplates,addondeploymentconfigs,manifestworks,namespaces,placements,placementdecisions,roles,rolebindings,clusterroles,clusterrolebindings")
	for _, w := range lab.Workers {
		err = errors.Join(err, list(w, "appliedmanifestworks,namespaces,priorityclasses,clusterroles,clusterrolebindings,daemonsets,services,serviceaccounts,podmonitors"))
	}
	if len(left) > 0 {
		err = errors.Join(err, errors.New(strings.Join(left, "\n")))
	}
	return err
}

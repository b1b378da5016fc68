//go:build e2e && long

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// With config/addon/platforms, OCM installs on each worker the template of its label, and
// that of the GPU Operator when the label is removed.
func TestAddOnPlatforms(t *testing.T) {
	ctx := testContext(t, 10*time.Minute)
	if err := lab.StartOCM(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleanUp(t, func(context.Context) error { return lab.StopOCM() }) })
	prepareNodes(ctx, t)

	platforms := []string{"gke", "cdi", "sim"}
	const label = "plimsoll.dev/platform"
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			_, err := lab.Hub.Kubectl(ctx, "", "label", "managedcluster", "--all", label+"-")
			return err
		})
	})
	for i, worker := range workers() {
		kubectl(ctx, t, "label", "managedcluster", worker, label+"="+platforms[i])
	}
	kubectl(ctx, t, "apply", "--server-side", "-k", platformsFolder(t))
	t.Cleanup(func() { cleanUp(t, removeAddOn) })
	for i, worker := range workers() {
		awaitPlatform(ctx, t, worker, platforms[i])
	}
	awaitAddOnAvailable(ctx, t)

	kubectl(ctx, t, "label", "managedcluster", workers()[0], label+"-")
	awaitPlatform(ctx, t, workers()[0], "")

	if err := removeAddOn(ctx); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "all objects of the add-on to be deleted", checkNoAddOn)
}

// platformsFolder returns a folder with config/addon and the component platforms.
func platformsFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(filepath.Join(folder, "addon"), os.DirFS(filepath.Join(configFolder(t), "addon"))); err != nil {
		t.Fatal(err)
	}
	text := "resources: [addon]\ncomponents: [addon/platforms]\n"
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// awaitPlatform waits until the DaemonSet for NVIDIA has what only the template of the
// platform has, and a ready pod.
func awaitPlatform(ctx context.Context, t *testing.T, worker, platform string) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("%s to have the exporter of platform %q", worker, platform), func(ctx context.Context) error {
		set := &appsv1.DaemonSet{}
		if err := lab.Worker(worker).Client.Get(ctx, client.ObjectKey{Namespace: addOn, Name: addOn}, set); err != nil {
			return errors.Join(err, notApplied(ctx, worker))
		}
		if got := platformOf(set); got != platform || set.Status.ObservedGeneration != set.Generation || set.Status.NumberReady == 0 || set.Status.UpdatedNumberScheduled != set.Status.NumberReady {
			return fmt.Errorf("platform %q, status %+v", got, set.Status)
		}
		return nil
	})
}

// notApplied returns what OCM's work agent on the worker could not apply, and why.
func notApplied(ctx context.Context, worker string) error {
	works := &workv1.ManifestWorkList{}
	err := lab.Hub.Client.List(ctx, works, client.InNamespace(worker))
	for _, work := range works.Items {
		for _, m := range work.Status.ResourceStatus.Manifests {
			if c := meta.FindStatusCondition(m.Conditions, workv1.ManifestApplied); c != nil && c.Status != metav1.ConditionTrue {
				err = errors.Join(err, fmt.Errorf("%s %s: %s", m.ResourceMeta.Kind, m.ResourceMeta.Name, c.Message))
			}
		}
	}
	return err
}

// platformOf returns the platform of the template that has the DaemonSet: "" is the GPU
// Operator.
func platformOf(set *appsv1.DaemonSet) string {
	pod := set.Spec.Template.Spec
	container := pod.Containers[0]
	var found []string
	if slices.Contains(container.Args, "--nvml-library=/usr/local/nvidia/lib64/libnvidia-ml.so.1") {
		found = append(found, "gke")
	}
	if set.Spec.Template.Annotations["cdi.k8s.io/plimsoll-exporter"] != "" {
		found = append(found, "cdi")
	}
	if slices.Contains(container.Args, "--source=sim") {
		found = append(found, "sim")
	}
	if pod.RuntimeClassName != nil && *pod.RuntimeClassName == "nvidia" {
		found = append(found, "")
	}
	if len(found) != 1 {
		return fmt.Sprintf("%q", found)
	}
	return found[0]
}

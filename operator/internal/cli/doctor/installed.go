package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
)

// Names of the objects with which Open Cluster Management installs Plimsoll on workers.
const (
	exporterAddOn = "plimsoll-exporter"
	fleetWork     = "plimsoll-fleet"
)

// checkInstalled checks what Open Cluster Management installs on the workers: the works of
// the chart plimsoll-fleet, and the exporter's add-on. It returns nothing for those that a
// hub does not use.
func (d *doctor) checkInstalled(ctx context.Context) ([]installation.Diagnosis, error) {
	works, err := d.checkWorks(ctx)
	if err != nil {
		return nil, err
	}
	addOns, err := d.checkAddOns(ctx)
	return append(works, addOns...), err
}

func (d *doctor) checkWorks(ctx context.Context) ([]installation.Diagnosis, error) {
	works := &workv1.ManifestWorkList{}
	if err := d.client.List(ctx, works, client.MatchingFields{"metadata.name": fleetWork}); err != nil {
		return skipUnserved("ManifestWorks", err)
	}
	var diagnoses []installation.Diagnosis
	for i := range works.Items {
		w := &works.Items[i]
		subject, fix := "ManifestWork "+w.Namespace+"/"+w.Name, fmt.Sprintf("kubectl -n %s describe manifestwork %s", w.Namespace, w.Name)
		applied := apimeta.FindStatusCondition(w.Status.Conditions, workv1.WorkApplied)
		switch {
		case applied == nil:
			diagnoses = append(diagnoses, installation.Fault(subject, "the work agent of the cluster has not applied it", "kubectl describe managedcluster "+w.Namespace))
		case applied.Status != metav1.ConditionTrue:
			diagnoses = append(diagnoses, installation.Fault(subject, strings.Join(append([]string{applied.Message}, failedManifests(w)...), "; "), fix))
		case applied.ObservedGeneration != 0 && applied.ObservedGeneration < w.Generation:
			diagnoses = append(diagnoses, installation.Fault(subject, "the work agent of the cluster has not applied its latest version", "kubectl describe managedcluster "+w.Namespace))
		default:
			diagnoses = append(diagnoses, installation.Fine(subject, "is applied"))
		}
	}
	return diagnoses, nil
}

// failedManifests returns what the work agent could not apply, and why.
func failedManifests(w *workv1.ManifestWork) []string {
	var failed []string
	for _, m := range w.Status.ResourceStatus.Manifests {
		if c := apimeta.FindStatusCondition(m.Conditions, workv1.ManifestApplied); c != nil && c.Status == metav1.ConditionFalse {
			failed = append(failed, fmt.Sprintf("%s %s: %s", m.ResourceMeta.Kind, m.ResourceMeta.Name, c.Message))
		}
	}
	return failed
}

// checkAddOns checks the exporter's add-on on the workers of the gates. A worker can have the
// chart plimsoll-exporter instead.
func (d *doctor) checkAddOns(ctx context.Context) ([]installation.Diagnosis, error) {
	switch err := d.client.Get(ctx, client.ObjectKey{Name: exporterAddOn}, &addonv1alpha1.ClusterManagementAddOn{}); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return installation.Skip("ClusterManagementAddOn "+exporterAddOn, err)
	}
	addOns := &addonv1alpha1.ManagedClusterAddOnList{}
	if err := d.client.List(ctx, addOns); err != nil {
		return installation.Skip("ManagedClusterAddOns", err)
	}
	byCluster := map[string]*addonv1alpha1.ManagedClusterAddOn{}
	for i := range addOns.Items {
		if a := &addOns.Items[i]; a.Name == exporterAddOn {
			byCluster[a.Namespace] = a
		}
	}
	var diagnoses []installation.Diagnosis
	for _, cluster := range d.workers() {
		subject := "add-on " + exporterAddOn + " of " + cluster
		addOn := byCluster[cluster]
		if addOn == nil {
			diagnoses = append(diagnoses, installation.Warn(subject, "is not installed", "if the cluster has no other installation of the exporter: wait, because OCM installs it on 10% of the clusters at a time; then kubectl describe clustermanagementaddon "+exporterAddOn))
			continue
		}
		available := apimeta.FindStatusCondition(addOn.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable)
		if available == nil || available.Status != metav1.ConditionTrue {
			diagnoses = append(diagnoses, installation.Fault(subject, "is not available", fmt.Sprintf("kubectl -n %s describe managedclusteraddon %s", cluster, exporterAddOn)))
			continue
		}
		diagnoses = append(diagnoses, installation.Fine(subject, "is available"))
	}
	return diagnoses, nil
}

// workers returns the clusters in the configurations of the gates, sorted.
func (d *doctor) workers() []string {
	var names []string
	for i := range d.hub.Configs.Items {
		if config := &d.hub.Configs.Items[i]; config.Labels[v1alpha1.ManagedByLabel] != "" {
			names = append(names, config.Spec.Clusters...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// skipUnserved is skip, and returns nothing for a kind that the hub does not serve.
func skipUnserved(subject string, err error) ([]installation.Diagnosis, error) {
	if apierrors.IsNotFound(err) && hubclient.NoSuchResource(err) {
		return nil, nil
	}
	return installation.Skip(subject, err)
}

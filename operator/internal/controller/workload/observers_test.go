//go:build integration

package workload_test

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
)

// getWorkload reads a workload. The other observers return functions for Eventually and
// Consistently.
func getWorkload(t *testing.T, wl *kueue.Workload) *kueue.Workload {
	t.Helper()
	live := &kueue.Workload{}
	if err := apiClient.Get(context.Background(), client.ObjectKeyFromObject(wl), live); err != nil {
		t.Fatal(err)
	}
	return live
}

func resourceVersion(t *testing.T, wl *kueue.Workload) func() string {
	return func() string { return getWorkload(t, wl).ResourceVersion }
}

func isActive(t *testing.T, wl *kueue.Workload) func() *bool {
	return func() *bool { return getWorkload(t, wl).Spec.Active }
}

func nominatedClusters(t *testing.T, wl *kueue.Workload) func() []string {
	return func() []string { return getWorkload(t, wl).Status.NominatedClusterNames }
}

// checkState returns "STATE: MESSAGE" of a workload's check.
func checkState(t *testing.T, wl *kueue.Workload, check string) func() string {
	return func() string {
		c := kueuestate.FindCheck(getWorkload(t, wl), check)
		return fmt.Sprintf("%s: %s", c.State, c.Message)
	}
}

// dispatchRecord returns the annotation plimsoll.dev/dispatch.
func dispatchRecord(t *testing.T, wl *kueue.Workload) func() (dispatch.Record, error) {
	return func() (dispatch.Record, error) { return dispatch.Decode(getWorkload(t, wl).Annotations) }
}

// eventsOf returns "REASON: NOTE" of each event about a workload.
func eventsOf(t *testing.T, wl *kueue.Workload) func() []string {
	return func() []string {
		list := &eventsv1.EventList{}
		if err := apiClient.List(t.Context(), list, client.InNamespace(wl.Namespace)); err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, e := range list.Items {
			if e.Regarding.Name == wl.Name && e.Regarding.UID == wl.UID {
				found = append(found, e.Reason+": "+e.Note)
			}
		}
		return found
	}
}

// explain returns the explanation of a workload. An error becomes its Problem.
func explain(t *testing.T, r *workload.Reconciler, wl *kueue.Workload) func() *gate.Explanation {
	return func() *gate.Explanation {
		e, err := r.Explain(t.Context(), client.ObjectKeyFromObject(wl))
		if err != nil {
			return &gate.Explanation{Problem: err.Error()}
		}
		return e
	}
}

// explainCluster returns why a cluster is eligible or not.
func explainCluster(t *testing.T, wl *kueue.Workload, cluster string) func() string {
	return func() string {
		e := explain(t, reconciler, wl)()
		for _, c := range e.Clusters {
			if c.Cluster == cluster {
				return c.Why
			}
		}
		return e.Problem
	}
}

// ledgerEntries returns the reservations of a workload on a cluster.
func ledgerEntries(t *testing.T, wl *kueue.Workload, cluster string) func() []ledger.Entry {
	return func() []ledger.Entry {
		e, err := reconciler.Explain(t.Context(), client.ObjectKeyFromObject(wl))
		if err != nil {
			t.Fatal(err)
		}
		var entries []ledger.Entry
		for _, c := range e.Clusters {
			for _, entry := range c.Ledger {
				if c.Cluster == cluster && entry.UID == string(wl.UID) {
					entries = append(entries, entry)
				}
			}
		}
		return entries
	}
}

// gateCondition returns "STATUS REASON: MESSAGE" of a gate's condition.
func gateCondition(t *testing.T, gateName, kind string) func() string {
	return func() string {
		pg := &v1alpha1.PlacementGate{}
		if err := apiClient.Get(t.Context(), client.ObjectKey{Name: gateName}, pg); err != nil {
			return err.Error()
		}
		return formatRequirement(pg.Status.Conditions, kind)
	}
}

// checkActive returns the condition Active of a gate's AdmissionCheck, which Kueue requires.
func checkActive(t *testing.T, gateName string) func() string {
	return func() string {
		c := &kueue.AdmissionCheck{}
		if err := apiClient.Get(t.Context(), client.ObjectKey{Name: gateName + "-plimsoll"}, c); err != nil {
			return err.Error()
		}
		return formatRequirement(c.Status.Conditions, kueue.AdmissionCheckActive)
	}
}

func formatRequirement(conditions []metav1.Condition, kind string) string {
	c := apimeta.FindStatusCondition(conditions, kind)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// configClusters returns the clusters of a MultiKueueConfig.
func configClusters(t *testing.T, name string) func() ([]string, error) {
	return func() ([]string, error) {
		config := &kueue.MultiKueueConfig{}
		err := apiClient.Get(t.Context(), client.ObjectKey{Name: name}, config)
		return config.Spec.Clusters, err
	}
}

// credentialsOf returns the kind and name of a MultiKueueCluster's credentials.
func credentialsOf(t *testing.T, name string) func() string {
	return func() string {
		c := &kueue.MultiKueueCluster{}
		if err := apiClient.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
			return err.Error()
		}
		if ref := c.Spec.ClusterSource.ClusterProfileRef; ref != nil {
			return "profile " + ref.Name
		}
		return "secret " + c.Spec.ClusterSource.KubeConfig.Location
	}
}

// metricSum returns the sum of a gauge's values, or of a histogram's situations, over the
// series with a label of this value.
func metricSum(g Gomega, registry *prometheus.Registry, name, labelValue string) func() float64 {
	return func() (sum float64) {
		families, err := registry.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, label := range m.GetLabel() {
					if f.GetName() == name && label.GetValue() == labelValue {
						sum += m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
					}
				}
			}
		}
		return sum
	}
}

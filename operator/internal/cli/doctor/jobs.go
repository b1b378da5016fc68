package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
)

// checkJobs checks that jobs can reach the gated queues and get quota there.
func (d *doctor) checkJobs(ctx context.Context) ([]installation.Diagnosis, error) {
	local := &kueue.LocalQueueList{}
	if err := d.client.List(ctx, local); err != nil {
		return skipUnserved("LocalQueues", err)
	}
	var diagnoses []installation.Diagnosis
	gateOf, configOf := d.hub.GateOf(), d.hub.ConfigOf()
	for i := range d.hub.Queues.Items {
		queue := &d.hub.Queues.Items[i]
		checks := kueuestate.ChecksOfQueue(queue)
		if !slices.ContainsFunc(checks, func(name string) bool { return gateOf[name] != "" }) {
			continue
		}
		subject := "ClusterQueue " + queue.Name
		if !hasQuota(queue) {
			diagnoses = append(diagnoses, installation.Fault(subject, "has no quota: no job starts", "kubectl edit clusterqueue "+queue.Name+": spec.resourceGroups"))
		}
		if !slices.ContainsFunc(local.Items, func(l kueue.LocalQueue) bool { return string(l.Spec.ClusterQueue) == queue.Name }) {
			diagnoses = append(diagnoses, installation.Fault(subject, "no LocalQueue leads to it: no job can use it", "create a LocalQueue with spec.clusterQueue: "+queue.Name+" in the namespace of the jobs"))
		}
		for _, name := range checks {
			if configOf[name] != "" {
				diagnoses = append(diagnoses, d.checkMultiKueue(name)...)
			}
		}
	}
	waiting, err := d.checkQueueNames(ctx, local)
	return append(diagnoses, waiting...), err
}

// hasQuota returns whether the queue has quota of a resource, or can borrow it.
func hasQuota(queue *kueue.ClusterQueue) bool {
	for _, group := range queue.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			if slices.ContainsFunc(flavor.Resources, func(r kueue.ResourceQuota) bool { return !r.NominalQuota.IsZero() }) {
				return true
			}
		}
	}
	return queue.Spec.CohortName != ""
}

// checkMultiKueue checks an AdmissionCheck of MultiKueue.
func (d *doctor) checkMultiKueue(name string) []installation.Diagnosis {
	for i := range d.hub.Checks.Items {
		if d.hub.Checks.Items[i].Name != name {
			continue
		}
		active := apimeta.FindStatusCondition(d.hub.Checks.Items[i].Status.Conditions, kueue.AdmissionCheckActive)
		if active != nil && active.Status == metav1.ConditionTrue {
			return nil
		}
		message := "has no condition Active: Kueue runs without MultiKueue"
		if active != nil {
			message = "is not Active: " + cmp.Or(active.Message, active.Reason)
		}
		return []installation.Diagnosis{installation.Fault("AdmissionCheck "+name, message, "kubectl describe admissioncheck "+name+"; the feature gate MultiKueue in Kueue's configuration must not be false")}
	}
	return nil
}

// checkQueueNames finds LocalQueues that waiting workloads name and that do not exist.
func (d *doctor) checkQueueNames(ctx context.Context, local *kueue.LocalQueueList) ([]installation.Diagnosis, error) {
	workloads := &kueue.WorkloadList{}
	if err := d.client.List(ctx, workloads); err != nil {
		return skipUnserved("Workloads", err)
	}
	exists, missing := map[client.ObjectKey]bool{}, map[string]int{}
	for i := range local.Items {
		exists[client.ObjectKeyFromObject(&local.Items[i])] = true
	}
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		key := client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
		if key.Name != "" && !exists[key] && !kueuestate.IsFinished(wl) && !kueuestate.HoldsQuota(wl) {
			missing[key.String()]++
		}
	}
	var diagnoses []installation.Diagnosis
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		diagnoses = append(diagnoses, installation.Fault("LocalQueue "+key, fmt.Sprintf("does not exist, and %s it", waitFor(missing[key])),
			"kubectl get localqueues -A; then correct the label kueue.x-k8s.io/queue-name of the jobs"))
	}
	return diagnoses, nil
}

// waitFor returns "1 workload waits for" or "2 workloads wait for".
func waitFor(n int) string {
	if n == 1 {
		return "1 workload waits for"
	}
	return fmt.Sprintf("%d workloads wait for", n)
}

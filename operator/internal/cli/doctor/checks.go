package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/version"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
)

// readOperatorLogs is the command that prints the logs of all replicas of the operator. Only the leader
// logs what it does.
func (d *doctor) readOperatorLogs() string {
	return fmt.Sprintf("kubectl -n %s logs -l app.kubernetes.io/name=%s --prefix --tail=-1", d.namespace, hubclient.OperatorName)
}

// maxLeaseAge is the age of the Lease from which no replica leads. The operator renews it
// every two seconds.
const maxLeaseAge = 30 * time.Second

// checkOperator checks the Deployment and the Lease of the operator.
func (d *doctor) checkOperator(ctx context.Context) ([]installation.Diagnosis, error) {
	diagnoses := []installation.Diagnosis{installation.Fine("kubectl plimsoll", "version "+cmp.Or(version.Version, "unknown"))}
	deployment, key := &appsv1.Deployment{}, client.ObjectKey{Namespace: d.namespace, Name: hubclient.OperatorName}
	subject := "Deployment " + key.String()
	switch err := d.client.Get(ctx, key, deployment); {
	case apierrors.IsNotFound(err):
		diagnoses = append(diagnoses, installation.Fault(subject, "does not exist", "kubectl apply --server-side -k config/default, or set --operator-namespace"))
	case err != nil:
		skipped, err := installation.Skip(subject, err)
		if err != nil {
			return nil, err
		}
		diagnoses = append(diagnoses, skipped...)
	case deployment.Status.AvailableReplicas == 0:
		diagnoses = append(diagnoses, installation.Fault(subject, "has no available replica", fmt.Sprintf("kubectl -n %s describe pods -l app.kubernetes.io/name=%s", d.namespace, hubclient.OperatorName)))
	default:
		diagnoses = append(diagnoses, installation.Fine(subject, fmt.Sprintf("%s available, image %s", format.Plural(int(deployment.Status.AvailableReplicas), "replica"), imageOf(deployment))))
	}
	d.nominates = nominates(deployment)
	lease := &coordinationv1.Lease{}
	subject = "Lease " + key.String()
	err := d.client.Get(ctx, key, lease)
	switch {
	case apierrors.IsNotFound(err):
		return append(diagnoses, installation.Fault(subject, "no replica has ever led", d.readOperatorLogs())), nil
	case err != nil:
		skipped, err := installation.Skip(subject, err)
		return append(diagnoses, skipped...), err
	case lease.Spec.RenewTime == nil || d.app.Now().Sub(lease.Spec.RenewTime.Time) > maxLeaseAge:
		return append(diagnoses, installation.Fault(subject, "no replica leads: no workload is decided and no score renewed", d.readOperatorLogs())), nil
	}
	leader := ""
	if lease.Spec.HolderIdentity != nil {
		leader, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
	}
	return append(diagnoses, installation.Fine(subject, "the leader is "+leader)), nil
}

// nominates returns whether the operator is meant to be Kueue's dispatcher.
func nominates(deployment *appsv1.Deployment) bool {
	containers := deployment.Spec.Template.Spec.Containers
	return len(containers) > 0 && !slices.Contains(containers[0].Args, "--multikueue-dispatch=off")
}

// imageOf returns the image of the first container.
func imageOf(deployment *appsv1.Deployment) string {
	if containers := deployment.Spec.Template.Spec.Containers; len(containers) > 0 {
		return containers[0].Image
	}
	return "unknown"
}

// checkKueue checks the version of Kueue and its dispatcher.
func (d *doctor) checkKueue(ctx context.Context) ([]installation.Diagnosis, error) {
	if d.hub.WithoutKueue {
		return nil, nil
	}
	var diagnoses []installation.Diagnosis
	deployment, subject := &appsv1.Deployment{}, "Deployment "+d.kueue+"/"+installation.KueueDeployment
	switch err := d.client.Get(ctx, client.ObjectKey{Namespace: d.kueue, Name: installation.KueueDeployment}, deployment); {
	case apierrors.IsNotFound(err):
		diagnoses = append(diagnoses, installation.Diagnosis{Result: installation.ResultSkipped, Subject: subject, Message: "does not exist: set --kueue-namespace"})
	case err != nil:
		skipped, err := installation.Skip(subject, err)
		if err != nil {
			return nil, err
		}
		diagnoses = append(diagnoses, skipped...)
	case deployment.Status.ObservedGeneration < deployment.Generation || deployment.Status.UnavailableReplicas > 0:
		diagnoses = append(diagnoses, installation.Fault(subject, "is not available", fmt.Sprintf("kubectl -n %s rollout status deployment/%s", d.kueue, installation.KueueDeployment)))
	default:
		diagnoses = append(diagnoses, installation.Fine(subject, "image "+imageOf(deployment)))
	}
	subject = "Kueue's dispatcher"
	name, err := installation.ReadDispatcher(ctx, d.client, d.kueue)
	switch {
	case apierrors.IsNotFound(err):
		return append(diagnoses, installation.Diagnosis{Result: installation.ResultSkipped, Subject: subject, Message: "ConfigMap " + d.kueue + "/kueue-manager-config does not exist; the gates' condition DispatcherMatches reports mismatches"}), nil
	case err != nil:
		skipped, err := installation.Skip(subject, err)
		return append(diagnoses, skipped...), err
	case name == v1alpha1.DispatcherName:
		return append(diagnoses, installation.Fine(subject, name)), nil
	}
	name = cmp.Or(name, "the built-in one")
	for i := range d.hub.Gates.Items {
		g := &d.hub.Gates.Items[i]
		if d.nominates && g.Spec.MultiKueue != nil || apimeta.IsStatusConditionFalse(g.Status.Conditions, v1alpha1.ConditionDispatcherMatches) {
			return append(diagnoses, installation.Fault(subject, name+", and PlacementGate "+g.Name+" nominates clusters itself", "kubectl plimsoll connect --dispatcher="+v1alpha1.DispatcherName+", or run the operator with --multikueue-dispatch=off")), nil
		}
	}
	return append(diagnoses, installation.Fine(subject, name)), nil
}

// checkConditions checks the conditions of sources, gates and all policies.
func (d *doctor) checkConditions(context.Context) ([]installation.Diagnosis, error) {
	var diagnoses []installation.Diagnosis
	for i := range d.hub.Sources.Items {
		s := &d.hub.Sources.Items[i]
		diagnoses = append(diagnoses, diagnoseConditions("MetricsSource "+s.Name, s.Status.Conditions, "kubectl edit metricssource "+s.Name+": spec.url, or its credentials")...)
	}
	for i := range d.hub.Policies.Items {
		p := &d.hub.Policies.Items[i]
		diagnoses = append(diagnoses, diagnoseConditions("ScoringPolicy "+p.Name, p.Status.Conditions, "kubectl plimsoll explain policy "+p.Name)...)
	}
	for i := range d.hub.Gates.Items {
		g := &d.hub.Gates.Items[i]
		diagnoses = append(diagnoses, diagnoseConditions("PlacementGate "+g.Name, g.Status.Conditions, "kubectl describe placementgate "+g.Name)...)
	}
	for i := range d.hub.Capacity.Items {
		p := &d.hub.Capacity.Items[i]
		diagnoses = append(diagnoses, diagnoseConditions("CapacityPolicy "+p.Name, p.Status.Conditions, "kubectl plimsoll quota -o wide; kubectl describe capacitypolicy "+p.Name)...)
	}
	for i := range d.hub.Reclaim.Items {
		p := &d.hub.Reclaim.Items[i]
		diagnoses = append(diagnoses, diagnoseConditions("ReclaimPolicy "+p.Name, p.Status.Conditions, "kubectl describe reclaimpolicy "+p.Name)...)
	}
	for i := range d.hub.Trials.Items {
		p := &d.hub.Trials.Items[i]
		diagnoses = append(diagnoses, diagnoseConditions("TrialPolicy "+p.Name, p.Status.Conditions, "kubectl describe trialpolicy "+p.Name)...)
	}
	return diagnoses, nil
}

// diagnoseConditions returns a fault for each condition that is False, except Ready, which
// sums up the others, those of mode Shadow, and Secure, PreemptionGated and ClustersStart, which are warnings.
// PreemptionGated that is Unknown was not checked. Without any of these it returns one diagnosis.
func diagnoseConditions(subject string, conditions []metav1.Condition, fix string) []installation.Diagnosis {
	var diagnoses []installation.Diagnosis
	hasFault, ready := false, apimeta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	for _, c := range conditions {
		message := c.Type + ": " + c.Reason + ": " + c.Message
		switch {
		case c.Type == v1alpha1.ConditionPreemptionGated && c.Status == metav1.ConditionUnknown:
			d := installation.Warn(subject, message, "")
			d.Result = installation.ResultSkipped
			diagnoses = append(diagnoses, d)
		case c.Status != metav1.ConditionFalse || c.Type == v1alpha1.ConditionReady || c.Reason == v1alpha1.ReasonShadow:
		case slices.Contains([]string{v1alpha1.ConditionSecure, v1alpha1.ConditionPreemptionGated, v1alpha1.ConditionClustersStart}, c.Type):
			diagnoses = append(diagnoses, installation.Warn(subject, message, fix))
		default:
			diagnoses, hasFault = append(diagnoses, installation.Fault(subject, message, fix)), true
		}
	}
	switch {
	case hasFault:
		return diagnoses
	case ready == nil:
		return append(diagnoses, installation.Fault(subject, "has no condition Ready: the operator has not seen it", fix))
	case ready.Status != metav1.ConditionTrue:
		return append(diagnoses, installation.Fault(subject, ready.Reason+": "+ready.Message, fix))
	case ready.Reason == v1alpha1.ReasonShadow:
		return append(diagnoses, installation.Fine(subject, ready.Reason+": "+ready.Message))
	case len(diagnoses) == 0:
		return []installation.Diagnosis{installation.Fine(subject, ready.Reason)}
	}
	return diagnoses
}

// checkQueues checks the admission checks of gates and the queues that have them.
func (d *doctor) checkQueues(context.Context) ([]installation.Diagnosis, error) {
	var diagnoses []installation.Diagnosis
	gateOf, configOf := d.hub.GateOf(), d.hub.ConfigOf()
	gated := map[string]bool{}
	for i := range d.hub.Queues.Items {
		queue := &d.hub.Queues.Items[i]
		found := d.checkQueue(queue, gateOf, configOf)
		if len(found) > 0 {
			gated[queue.Name] = true
		}
		diagnoses = append(diagnoses, found...)
	}
	for i := range d.hub.Checks.Items {
		check := &d.hub.Checks.Items[i]
		gate, ours := gateOf[check.Name]
		if !ours {
			continue
		}
		subject := "AdmissionCheck " + check.Name
		active := apimeta.FindStatusCondition(check.Status.Conditions, kueue.AdmissionCheckActive)
		switch {
		case gate == "":
			diagnoses = append(diagnoses, installation.Fault(subject, "names no PlacementGate", "kubectl edit admissioncheck "+check.Name+": spec.parameters {apiGroup: plimsoll.dev, kind: PlacementGate, name: …}"))
		case d.hub.Gate(gate) == nil:
			diagnoses = append(diagnoses, installation.Fault(subject, "its PlacementGate "+gate+" does not exist", "create the gate, or take the check off its queues"))
		case active == nil || active.Status != metav1.ConditionTrue:
			diagnoses = append(diagnoses, installation.Fault(subject, "is not Active", "kubectl describe admissioncheck "+check.Name))
		default:
			diagnoses = append(diagnoses, installation.Fine(subject, "belongs to PlacementGate "+gate))
		}
	}
	if len(d.hub.Gates.Items) > 0 && len(gated) == 0 {
		diagnoses = append(diagnoses, installation.Fault("ClusterQueues", "no queue has the check of a gate: all jobs start without a gate", "add the AdmissionCheck of a gate to spec.admissionChecksStrategy of a ClusterQueue"))
	}
	return diagnoses, nil
}

// checkQueue checks a queue with the check of a gate, or with a MultiKueue check of a
// configuration that a gate writes. It returns nothing for other queues.
func (d *doctor) checkQueue(queue *kueue.ClusterQueue, gateOf, configOf map[string]string) []installation.Diagnosis {
	subject, names := "ClusterQueue "+queue.Name, kueuestate.ChecksOfQueue(queue)
	var gates, configs []string
	for _, name := range names {
		if gate, ok := gateOf[name]; ok {
			gates = append(gates, gate)
		}
		if config, ok := configOf[name]; ok {
			configs = append(configs, config)
		}
	}
	ours := slices.ContainsFunc(configs, func(name string) bool {
		config := d.hub.Config(name)
		return config != nil && config.Labels[v1alpha1.ManagedByLabel] != ""
	})
	fix := "kubectl edit clusterqueue " + queue.Name + ": spec.admissionChecksStrategy"
	active := apimeta.FindStatusCondition(queue.Status.Conditions, kueue.ClusterQueueActive)
	switch {
	case len(gates) == 0 && !ours:
		return nil
	case len(gates) == 0:
		return []installation.Diagnosis{installation.Fault(subject, "has a MultiKueue check whose configuration a gate writes, and no check of a gate: its jobs are copied to every cluster, whether it has room or not", fix)}
	case len(configs) == 0 && slices.ContainsFunc(gates, func(g string) bool { gate := d.hub.Gate(g); return gate != nil && gate.Spec.MultiKueue != nil }):
		return []installation.Diagnosis{installation.Fault(subject, "has the check of a gate and no MultiKueue check: its jobs run on the hub", fix)}
	case active == nil || active.Status != metav1.ConditionTrue:
		return []installation.Diagnosis{installation.Fault(subject, "is not Active", "kubectl describe clusterqueue "+queue.Name)}
	}
	return []installation.Diagnosis{installation.Fine(subject, "is gated by "+strings.Join(gates, ", "))}
}

// checkWorkers checks the connection to each worker of the gates' configurations.
func (d *doctor) checkWorkers(context.Context) ([]installation.Diagnosis, error) {
	var diagnoses []installation.Diagnosis
	for i := range d.hub.Configs.Items {
		config := &d.hub.Configs.Items[i]
		if config.Labels[v1alpha1.ManagedByLabel] == "" {
			continue
		}
		for _, name := range config.Spec.Clusters {
			cluster := d.hub.Cluster(name)
			if reason := kueuestate.DisconnectedReason(config, name, cluster); reason != "" {
				diagnoses = append(diagnoses, installation.Fault("worker "+name, reason, credentialsFix(d.kueue, name, cluster)))
				continue
			}
			diagnoses = append(diagnoses, installation.Fine("worker "+name, "is connected"))
		}
	}
	return diagnoses, nil
}

// checkMembers warns of each ManagedCluster that waits to be accepted. No policy scores it, so the
// checks after this one leave it out.
func (d *doctor) checkMembers(context.Context) ([]installation.Diagnosis, error) {
	var diagnoses []installation.Diagnosis
	d.hub.Managed.Items = slices.DeleteFunc(d.hub.Managed.Items, func(c clusterv1.ManagedCluster) bool {
		if !c.Spec.HubAcceptsClient && c.DeletionTimestamp.IsZero() {
			diagnoses = append(diagnoses, installation.Warn("ManagedCluster "+c.Name, "is not accepted: no policy scores it, and no job is sent there", "clusteradm accept --clusters "+c.Name))
		}
		return !hubstate.IsMember(&c)
	})
	return diagnoses, nil
}

// credentialsFix says how to give Kueue access to a worker.
func credentialsFix(namespace, worker string, cluster *kueue.MultiKueueCluster) string {
	if cluster == nil || cluster.Spec.ClusterSource.KubeConfig == nil {
		return "kubectl describe multikueuecluster; then read the logs of Kueue"
	}
	return fmt.Sprintf("kubectl plimsoll connect %s=CONTEXT, which writes Secret %s/%s", worker, namespace, cluster.Spec.ClusterSource.KubeConfig.Location)
}

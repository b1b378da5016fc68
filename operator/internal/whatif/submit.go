package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
)

// Names of the objects of a job whose queue does not have them.
const (
	ownCheck        = "plimsoll-whatif"
	multiKueueCheck = "plimsoll-whatif-multikueue"
	workersConfig   = "plimsoll-whatif"
)

// submit creates the Workload of a job as it is when it has quota, and all checks but those of the gate and of MultiKueue
// are Ready.
func (f *Fleet) submit(ctx context.Context, wl *kueue.Workload, answer *Answer) (*kueue.Workload, error) {
	now := metav1.NewTime(f.opts.Now())
	submitted := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: wl.Namespace, Name: wl.Name, UID: f.uidOf(wl), CreationTimestamp: now, Labels: wl.Labels,
		Annotations: maps.Clone(wl.Annotations), OwnerReferences: wl.OwnerReferences}, Spec: *wl.Spec.DeepCopy()}
	delete(submitted.Annotations, v1alpha1.DispatchAnnotation)
	submitted.Spec.Active = nil
	since := now
	if wl.Status.Admission != nil { // it keeps its place in the order
		submitted.CreationTimestamp, since = wl.CreationTimestamp, metav1.NewTime(kueuestate.QuotaReservedAt(wl))
		if record, err := dispatch.Decode(wl.Annotations); err == nil && !record.WaitsSince.IsZero() {
			submitted.Annotations[v1alpha1.DispatchAnnotation] = dispatch.Record{WaitsSince: record.WaitsSince}.Encode()
		}
	}
	queue, err := f.queueOf(ctx, wl, answer)
	if err != nil {
		return nil, err
	}
	priority, err := f.priorityOf(ctx, wl, answer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", answer.Job, err)
	}
	submitted.Spec.Priority = &priority
	submitted.Status.Admission = wl.Status.Admission
	if submitted.Status.Admission == nil {
		if submitted.Status.Admission, err = f.assign(ctx, submitted, queue, answer); err != nil {
			return nil, err
		}
	}
	submitted.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: kueue.WorkloadQuotaReserved, LastTransitionTime: since}}
	if submitted.Status.AdmissionChecks, err = f.checksOf(ctx, queue, submitted.Status.Admission, answer); err != nil {
		return nil, err
	}
	existing := &kueue.Workload{}
	if found, err := hubstate.Find(ctx, f.hub, client.ObjectKeyFromObject(wl), existing); err != nil {
		return nil, err
	} else if found {
		f.explainer.Forget(client.ObjectKeyFromObject(existing))
		f.ledger.Commit(f.ledger.View(), string(existing.UID), nil, nil, nil)
		if err := f.hub.Delete(ctx, existing); err != nil {
			return nil, fmt.Errorf("replace the Workload of the job: %w", err)
		}
	}
	status := submitted.Status.DeepCopy()
	if err := f.hub.Create(ctx, submitted); err != nil {
		return nil, fmt.Errorf("copy the job: %w", err)
	}
	submitted.Status = *status
	return submitted, f.hub.Status().Update(ctx, submitted)
}

// uidOf is the UID of a job that is asked about. It seeds the choice among equal clusters, so that an answer repeats.
func (f *Fleet) uidOf(wl *kueue.Workload) types.UID {
	f.asked++
	return types.UID(fmt.Sprintf("%s/%s/%d", wl.Namespace, wl.Name, f.asked))
}

// queueOf returns the ClusterQueue of a job on the hub; nil = there is no hub, or the job names no queue.
func (f *Fleet) queueOf(ctx context.Context, wl *kueue.Workload, answer *Answer) (*kueue.ClusterQueue, error) {
	if wl.Status.Admission != nil {
		queue := &kueue.ClusterQueue{}
		found, err := hubstate.Find(ctx, f.hub, client.ObjectKey{Name: string(wl.Status.Admission.ClusterQueue)}, queue)
		if err != nil || !found {
			answer.Assumed = append(answer.Assumed, fmt.Sprintf("ClusterQueue %s, which does not exist, has no checks", wl.Status.Admission.ClusterQueue))
			return nil, err
		}
		return queue, nil
	}
	queues := &kueue.ClusterQueueList{}
	if err := f.hub.List(ctx, queues); err != nil {
		return nil, err
	}
	switch {
	case len(queues.Items) == 0:
		return nil, nil
	case wl.Spec.QueueName == "":
		answer.Assumed = append(answer.Assumed, "the job has no queue: set the label "+queueLabel+" for quota and flavors")
		return nil, nil
	}
	local := &kueue.LocalQueue{}
	key := client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
	if found, err := hubstate.Find(ctx, f.hub, key, local); err != nil || !found {
		return nil, cmp.Or(err, NoLocalQueue(key))
	}
	queue := &kueue.ClusterQueue{}
	if found, err := hubstate.Find(ctx, f.hub, client.ObjectKey{Name: string(local.Spec.ClusterQueue)}, queue); err != nil || !found {
		return nil, cmp.Or(err, fmt.Errorf("LocalQueue %s names ClusterQueue %s, which does not exist", key, local.Spec.ClusterQueue))
	}
	answer.Assumed = append(answer.Assumed, "ClusterQueue "+queue.Name+" gives the job quota")
	return queue, nil
}

// NoLocalQueue is the error about a job whose queue does not exist.
func NoLocalQueue(key client.ObjectKey) error {
	return fmt.Errorf("namespace %s has no LocalQueue %s: correct the label %s, or set the namespace with -n", key.Namespace, key.Name, queueLabel)
}

// ErrOtherGate is the error about a job that gets no flavor of its queue about which the gate decides.
var ErrOtherGate = errors.New("the job gets no flavor about which the gate decides")

// assign gives each pod set the first flavor of the queue that its node selector and tolerations permit, and about which
// the gate decides. Kueue takes the first one with quota of those that are permitted.
func (f *Fleet) assign(ctx context.Context, wl *kueue.Workload, queue *kueue.ClusterQueue, answer *Answer) (*kueue.Admission, error) {
	admission := &kueue.Admission{}
	if queue == nil {
		return admission, nil
	}
	admission.ClusterQueue = kueue.ClusterQueueReference(queue.Name)
	answer.Flavors = map[string]map[string]string{}
	for i := range wl.Spec.PodSets {
		p := &wl.Spec.PodSets[i]
		assigned := kueue.PodSetAssignment{Name: p.Name, Count: &p.Count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{}}
		flavors := map[string]string{}
		for _, resource := range requestedBy(&p.Template.Spec) {
			group := slices.IndexFunc(queue.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool { return slices.Contains(g.CoveredResources, resource) })
			if group < 0 {
				continue // Kueue may be configured to ignore it
			}
			permitted, err := f.permittedFlavors(ctx, p, queue.Spec.ResourceGroups[group].Flavors)
			if err != nil {
				return nil, err
			}
			flavor, err := f.firstOwn(ctx, queue, permitted)
			if err != nil {
				return nil, err
			}
			if flavor == "" {
				return nil, fmt.Errorf("no flavor for %s in ClusterQueue %s permits the node selector and tolerations of pods %s", resource, queue.Name, p.Name)
			}
			assigned.Flavors[resource], flavors[string(resource)] = flavor, string(flavor)
		}
		admission.PodSetAssignments = append(admission.PodSetAssignments, assigned)
		answer.Flavors[string(p.Name)] = flavors
	}
	if hasCheck, err := f.decidesUnder(ctx, queue, nil); err != nil || !hasCheck { // the gate takes the place of others
		return admission, err
	}
	if isOwn, err := f.decidesUnder(ctx, queue, admission); err != nil || !isOwn {
		return nil, cmp.Or(err, ErrOtherGate)
	}
	return admission, nil
}

// permittedFlavors returns the flavors that the pods may use.
func (f *Fleet) permittedFlavors(ctx context.Context, p *kueue.PodSet, flavors []kueue.FlavorQuotas) (names []kueue.ResourceFlavorReference, err error) {
	for _, q := range flavors {
		flavor := &kueue.ResourceFlavor{}
		found, err := hubstate.Find(ctx, f.hub, client.ObjectKey{Name: string(q.Name)}, flavor)
		if err != nil {
			return nil, err
		}
		if found && permits(&p.Template.Spec, &flavor.Spec) {
			names = append(names, q.Name)
		}
	}
	return names, nil
}

// firstOwn returns the first flavor for which the queue has a check of the gate, or else the first one; empty = there is none.
func (f *Fleet) firstOwn(ctx context.Context, queue *kueue.ClusterQueue, flavors []kueue.ResourceFlavorReference) (kueue.ResourceFlavorReference, error) {
	for _, name := range flavors {
		with := &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"": name}}}}
		if isOwn, err := f.decidesUnder(ctx, queue, with); err != nil || isOwn {
			return name, err
		}
	}
	if len(flavors) == 0 {
		return "", nil
	}
	return flavors[0], nil
}

// decidesUnder reports whether the gate has a check for an admission by a queue; nil = for any.
func (f *Fleet) decidesUnder(ctx context.Context, queue *kueue.ClusterQueue, admission *kueue.Admission) (bool, error) {
	for _, name := range kueuestate.ChecksFor(queue, admission) {
		check, err := hubstate.AdmissionCheck(ctx, f.hub, name)
		if err != nil {
			return false, err
		}
		if check != nil {
			if gate, isGate := kueuestate.GateOf(check); isGate && gate == f.gate.Name {
				return true, nil
			}
		}
	}
	return false, nil
}

// permits reports whether pods may run on the nodes of a flavor, as far as their node selector and tolerations say.
func permits(pod *corev1.PodSpec, flavor *kueue.ResourceFlavorSpec) bool {
	for key, value := range flavor.NodeLabels {
		if wanted, ok := pod.NodeSelector[key]; ok && wanted != value {
			return false
		}
	}
	tolerations := slices.Concat(pod.Tolerations, flavor.Tolerations)
	return !slices.ContainsFunc(flavor.NodeTaints, func(t corev1.Taint) bool {
		isHard := t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		return isHard && !slices.ContainsFunc(tolerations, func(o corev1.Toleration) bool { return o.ToleratesTaint(logr.Discard(), &t, true) })
	})
}

// requestedBy are the resources that pods request, sorted.
func requestedBy(pod *corev1.PodSpec) []corev1.ResourceName {
	all := corev1.ResourceList{}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		maps.Copy(all, c.Resources.Requests)
	}
	return slices.Sorted(maps.Keys(all))
}

// checksOf are the checks of a workload of the queue, with one of the gate. A gate that maintains a MultiKueueConfig, and
// one without a hub, sends jobs to workers.
func (f *Fleet) checksOf(ctx context.Context, queue *kueue.ClusterQueue, admission *kueue.Admission, answer *Answer) ([]kueue.AdmissionCheckState, error) {
	states := map[string]kueue.CheckState{}
	hasOwn, hasOther, multiKueue, workers := false, false, "", ""
	for _, name := range kueuestate.ChecksFor(queue, admission) {
		check, err := hubstate.AdmissionCheck(ctx, f.hub, name)
		if err != nil {
			return nil, err
		}
		if check == nil {
			continue
		}
		gate, isGate := kueuestate.GateOf(check)
		config, isMultiKueue := kueuestate.MultiKueueConfigOf(check)
		switch {
		case isGate && gate != f.gate.Name: // the gate that is asked about takes its place
			hasOther = true
		case isGate:
			states[name], hasOwn = kueue.CheckStatePending, true
		case isMultiKueue:
			states[name], multiKueue, workers = kueue.CheckStatePending, name, config
		default:
			states[name] = kueue.CheckStateReady
			answer.Assumed = append(answer.Assumed, "admission check "+name+" becomes Ready")
		}
	}
	if hasOwn && hasOther {
		answer.Assumed = append(answer.Assumed, "ClusterQueue "+queue.Name+" loses the checks of other gates: several block its jobs")
	}
	if !hasOwn {
		states[ownCheck] = kueue.CheckStatePending
	}
	if own := f.gate.Spec.MultiKueue; !f.isLocal && (!hasOwn && own != nil || multiKueue == "" && queue == nil && f.gate.Spec.PodSetUpdates == nil) {
		delete(states, multiKueue)
		states[multiKueueCheck] = kueue.CheckStatePending
		if multiKueue != "" && own.ConfigName != workers {
			answer.Assumed = append(answer.Assumed, fmt.Sprintf("admission check %s names MultiKueueConfig %s instead of %s", multiKueue, own.ConfigName, workers))
		}
	}
	var checks []kueue.AdmissionCheckState
	for _, name := range slices.Sorted(maps.Keys(states)) {
		checks = append(checks, kueue.AdmissionCheckState{Name: kueue.AdmissionCheckReference(name), State: states[name], LastTransitionTime: metav1.NewTime(f.opts.Now())})
	}
	return checks, nil
}

// connect adds what the gate needs and the hub does not have: checks for the gate and for MultiKueue, with a configuration
// of connected clusters.
func (f *Fleet) connect(ctx context.Context) error {
	config := workersConfig
	if f.gate.Spec.MultiKueue != nil {
		config = f.gate.Spec.MultiKueue.ConfigName
	}
	objects := []client.Object{
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: ownCheck}, Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.ControllerName,
			Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "PlacementGate", Name: f.gate.Name}}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: multiKueueCheck}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName,
			Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "MultiKueueConfig", Name: config}}},
	}
	existing, err := hubstate.MultiKueueConfig(ctx, f.hub, config)
	if err != nil {
		return err
	}
	if existing == nil {
		objects = append(objects, &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: config}, Spec: kueue.MultiKueueConfigSpec{Clusters: f.names}})
		for _, name := range f.names {
			cluster, err := hubstate.MultiKueueCluster(ctx, f.hub, name)
			if err != nil {
				return err
			}
			if cluster == nil {
				objects = append(objects, &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: kueue.MultiKueueClusterStatus{Conditions: []metav1.Condition{
					{Type: kueue.MultiKueueClusterActive, Status: metav1.ConditionTrue, Reason: "Active", LastTransitionTime: metav1.NewTime(f.opts.Now())}}}})
			}
		}
	}
	for _, o := range objects {
		if err := f.hub.Create(ctx, o); err != nil {
			return fmt.Errorf("add %T %s to the copy of the hub: %w", o, o.GetName(), err)
		}
	}
	return nil
}

package world

import (
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// Names of the hub's objects.
const (
	gateName      = "gpu"
	sourceName    = "thanos"
	policyName    = "fleet"
	namespace     = "plimsoll-fleet"
	checkName     = "plimsoll"
	multiKueueAC  = "multikueue"
	configName    = "gpu"
	otherCheck    = "example.com/other"
	kueueManager  = "kueue-admission"
	defaultTenant = "team-a"
)

// hubWorkloads are the Workloads on the hub.
type hubWorkloads struct {
	liveWorkloads
	store hub.Store
}

func (h *hubWorkloads) update(key types.NamespacedName, change func(*kueue.Workload) bool) bool {
	changed, err := hub.Update(h.store, key, kueueManager, change)
	return err == nil && changed
}

func (h *hubWorkloads) remove(key types.NamespacedName) {
	_ = client.IgnoreNotFound(h.store.Remove(&kueue.Workload{}, key, kueueManager))
}

// create stores an object with its status on the hub.
func (w *World) create(obj client.Object) {
	if err := w.objects.Add(obj, "admin"); err != nil {
		panic(err)
	}
}

// createHub creates the objects that an administrator creates.
func (w *World) createHub() {
	for _, c := range w.clusters {
		w.create(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: c.spec.Name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
			Status: clusterv1.ManagedClusterStatus{Conditions: []metav1.Condition{
				{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, Reason: "Available", LastTransitionTime: metav1.NewTime(w.loop.Now())}}}})
	}
	w.create(&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: gateName}})
	w.ocm.decide()
	w.create(&v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: sourceName}, Spec: v1alpha1.MetricsSourceSpec{URL: "http://thanos.example:9090", Type: v1alpha1.SourceThanos,
		// With limits that many queries reach, the order in which goroutines start would matter.
		Advanced: v1alpha1.AdvancedSource{MaxConcurrency: 64, QueriesPerSecond: 1000}}})
	for _, f := range w.kueue.quota.flavors {
		w.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: f.name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: f.nodeLabels()}})
	}
	reference := func(group, kind, name string) *kueue.AdmissionCheckParametersReference {
		return &kueue.AdmissionCheckParametersReference{APIGroup: group, Kind: kind, Name: name}
	}
	w.create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: checkName}, Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.ControllerName, Parameters: reference(v1alpha1.GroupVersion.Group, "PlacementGate", gateName)}})
	w.create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: multiKueueAC}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName, Parameters: reference(kueue.SchemeGroupVersion.Group, "MultiKueueConfig", configName)},
		Status: kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", LastTransitionTime: metav1.NewTime(w.loop.Now())}}}})
	w.create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: kueue.AdmissionCheckSpec{ControllerName: otherCheck}})
	for i := range w.Spec.Queues {
		q := &w.Spec.Queues[i]
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: q.Name}, Status: kueue.ClusterQueueStatus{Conditions: []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.NewTime(w.loop.Now())}}}}
		cq.Spec.CohortName, cq.Spec.ResourceGroups = kueue.CohortReference(q.Cohort), w.kueue.quota.resourceGroups(q)
		if q.WithinQueue != "" || q.ReclaimCohort != "" {
			cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicy(q.WithinQueue), ReclaimWithinCohort: kueue.PreemptionPolicy(q.ReclaimCohort)}
		}
		w.create(cq)
		for _, ns := range w.namespaces() {
			w.create(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: q.Name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(q.Name)},
				Status: kueue.LocalQueueStatus{Conditions: []metav1.Condition{{Type: kueue.LocalQueueActive, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.NewTime(w.loop.Now())}}}})
		}
	}
	spec := w.settings.Gate
	spec.PlacementRef = v1alpha1.NamespacedReference{Namespace: namespace, Name: gateName}
	spec.SourceRef = v1alpha1.LocalReference{Name: sourceName}
	spec.MultiKueue = &v1alpha1.GateMultiKueue{ConfigName: configName}
	if w.settings.Score != "" {
		w.create(&v1alpha1.ScoringPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}, Spec: scorePolicy(w.settings)})
	}
	w.createReclaimPolicy()
	w.createCapacityPolicy()
	w.createTrialPolicy()
	w.create(&v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: gateName}, Spec: withDefaults(spec)})
}

// withDefaults sets what the API server defaults from the CRD.
func withDefaults(spec v1alpha1.PlacementGateSpec) v1alpha1.PlacementGateSpec {
	if len(spec.ModelFrom) == 0 {
		spec.ModelFrom = []string{modelLabel}
	}
	if spec.Advanced.TierPoints == nil {
		points := int32(20)
		spec.Advanced.TierPoints = &points
	}
	return spec
}

// scorePolicy publishes a query's values from 0 to 64 as points from 0 to 100.
func scorePolicy(s Settings) v1alpha1.ScoringPolicySpec {
	zero := int32(0)
	return v1alpha1.ScoringPolicySpec{SourceRef: v1alpha1.LocalReference{Name: sourceName}, Scores: []v1alpha1.ScoreSpec{{
		Name: scoreName, Query: s.Score, Weight: &zero,
		Normalize: v1alpha1.Normalize{Type: v1alpha1.NormalizeLinear, Linear: &v1alpha1.Linear{From: resource.MustParse("0"), To: resource.MustParse("64")}},
	}}}
}

func (w *World) namespaces() []string {
	list := []string{defaultTenant}
	for i := range w.Spec.Jobs {
		if ns := w.Spec.Jobs[i].Namespace; !slices.Contains(list, ns) {
			list = append(list, ns)
		}
	}
	return list
}

// configClusters are the members of the gate's MultiKueueConfig.
func (w *World) configClusters() []string {
	if w.config == nil {
		return nil
	}
	return w.config.Spec.Clusters
}

func (w *World) isReportedActive(cluster string) bool {
	mk := w.mkClusters[cluster]
	return mk != nil && apimeta.IsStatusConditionTrue(mk.Status.Conditions, kueue.MultiKueueClusterActive)
}

// reportConnection writes the condition Active of a MultiKueueCluster.
func (w *World) reportConnection(cluster string, connected bool) {
	status, reason, message := metav1.ConditionTrue, "Active", "Connected"
	if !connected {
		status, reason, message = metav1.ConditionFalse, "ClientConnectionFailed", "connection refused"
	}
	_, _ = hub.Update(w.objects, types.NamespacedName{Name: cluster}, "kueue", func(mk *kueue.MultiKueueCluster) bool {
		return apimeta.SetStatusCondition(&mk.Status.Conditions, metav1.Condition{Type: kueue.MultiKueueClusterActive, Status: status, Reason: reason, Message: message, LastTransitionTime: w.kueue.stamp()})
	})
}

// submit creates the Workload of a job, as Kueue does for a new job.
func (w *World) submit(j *Job) {
	if j.Kind == KindSet {
		w.submitSet(j)
		return
	}
	r := w.newRun(j)
	wl := workloadOf(r.Job, r.Key, r.UID)
	if j.Tried {
		w.createTried(wl)
	}
	w.createHeldBack(wl)
}

// createHeldBack stores a new Workload as the policy of config/gate-first changes it.
func (w *World) createHeldBack(wl *kueue.Workload) {
	if w.settings.GateFirst {
		inactive := false
		wl.Spec.Active = &inactive
		if wl.Annotations == nil {
			wl.Annotations = map[string]string{}
		}
		wl.Annotations[v1alpha1.GateFirst] = "true"
		wl.Annotations[v1alpha1.DispatchAnnotation] = `{"attempt":0,"sleepsUntil":"1970-01-01T00:00:00Z"}`
	}
	w.create(wl)
}

// newRun begins the run of a job or of a component.
func (w *World) newRun(j *Job) *Run {
	key := key(j)
	uid := types.UID(j.Name + "-" + strconv.FormatUint(w.Spec.Seed, 10))
	run := &Run{Job: j, world: w, serial: len(w.order), Key: key, UID: uid, Submitted: w.loop.Now(), running: map[string]time.Time{}, killers: map[string]int{}}
	if former := w.runs[key]; former != nil { // a job of the same name was deleted
		run.jobs = former.jobs
	}
	if j.Elastic {
		own := *j // its size changes
		run.Job, run.slices = &own, []types.NamespacedName{key}
	}
	w.runs[key] = run
	w.order, w.unfinished = append(w.order, run), append(w.unfinished, run)
	w.jobs[key] = &batchJob{spec: j, key: key, suspended: true, pods: j.Pods}
	w.note("submit %s: %d x %d %s %s, priority %d, %s", j.Name, j.Pods, j.Devices, j.Resource, j.Model, j.Priority, j.Duration)
	return run
}

// workloadOf is the Workload that Kueue makes for a job.
func workloadOf(j *Job, key types.NamespacedName, uid types.UID) *kueue.Workload {
	yes := true
	requests := corev1.ResourceList{corev1.ResourceName(j.Resource): *resource.NewQuantity(j.Devices, resource.DecimalSI)}
	if j.CPU > 0 {
		requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(j.CPU, resource.DecimalSI)
	}
	if j.Memory > 0 {
		requests[corev1.ResourceMemory] = *resource.NewQuantity(j.Memory<<20, resource.BinarySI)
	}
	limits := corev1.ResourceList{corev1.ResourceName(j.Resource): requests[corev1.ResourceName(j.Resource)]}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/job", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}}
	if j.InitCPU > 0 {
		pod.InitContainers = []corev1.Container{{Name: "init", Image: "example.com/init", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(j.InitCPU, resource.DecimalSI)}}}}
	}
	j.addSidecar(&pod)
	if j.Secret != "" {
		pod.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: j.Secret}}}}
	}
	if j.Model != "" {
		pod.NodeSelector = map[string]string{modelLabel: j.Model}
	}
	if j.Tolerates != "" {
		pod.Tolerations = []corev1.Toleration{{Key: j.Tolerates, Operator: corev1.TolerationOpExists}}
	}
	if j.Grace > 0 {
		pod.TerminationGracePeriodSeconds = ptr.To(int64(j.Grace / time.Second))
	}
	set := kueue.PodSet{Name: "main", Count: int32(j.Pods), Template: corev1.PodTemplateSpec{Spec: pod}}
	if j.Reclaimable {
		set.Template.Labels = map[string]string{v1alpha1.ReclaimableLabel: "true"}
	}
	j.requireDomain(&set)
	j.addTrialLabels(&set)
	if j.MinPods > 0 {
		least := int32(j.MinPods)
		set.MinCount = &least
	}
	priority := j.Priority
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(j.Queue), Priority: &priority, Active: &yes, PodSets: []kueue.PodSet{set}}}
	if j.Kind == KindGroup {
		ownByPods(wl, j)
	} else {
		wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: j.Name, UID: uid + "-job", Controller: &yes}}
	}
	if j.Elastic {
		wl.Annotations = map[string]string{elasticAnnotation: "true"}
	}
	if j.Limit {
		seconds := int32(j.Duration/time.Second) + 600
		wl.Spec.MaximumExecutionTimeSeconds = &seconds
	}
	return wl
}

// Package shape reads from a Workload what its pods request: device resource, device model,
// devices per pod, number of pods, and the objects that they refer to. Workloads of the same shape share queries and wait
// together.
package shape

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// PodSet holds the requests of one pod set of a workload.
type PodSet struct {
	Name string `json:"name"`
	// Resource is the name of the device resource, such as nvidia.com/gpu.
	Resource string `json:"resource"`
	// Model of the devices as in the metrics, such as NVIDIA-H100-80GB-HBM3. Empty means any.
	Model string `json:"model,omitempty"`
	// Flavor is the ResourceFlavor that Kueue assigned for Resource.
	Flavor        string `json:"flavor,omitempty"`
	DevicesPerPod int64  `json:"devicesPerPod"`
	Pods          int64  `json:"pods"`
	// MinPods is the number of pods with which Kueue on the worker admits the copy, if its quota
	// does not suffice for all. 0 means all pods.
	MinPods int64 `json:"minPods,omitempty"`
	// Requests of each pod beside devices, NodeLabels that its node must have, and Tolerations of the taints that it
	// may have. Empty if the gate does not fit them.
	Requests    Requests     `json:"requests,omitzero"`
	NodeLabels  []NodeLabel  `json:"nodeLabels,omitempty"`
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// Share is the part of each device that a pod requests. Nil if the gate fits whole devices.
	Share *Share `json:"share,omitempty"`
	// RequiredTopology is the level of Kueue's Topology in one domain of which all pods must
	// start, or levelCluster. Empty if the gate does not fit domains.
	RequiredTopology string `json:"requiredTopology,omitempty"`
	// Profile of earlier runs on the model. Nil if the gate reads no profiles, or if there is none.
	Profile *Profile `json:"profile,omitempty"`
	// FlavorLabels are the flavor's nodeLabels.
	FlavorLabels map[string]string `json:"flavorLabels,omitempty"`
	// NodeSelector is the node selector of the pod template.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Labels are the labels and annotations that the gate's queries read, by variable.
	Labels map[string]string `json:"labels,omitempty"`
}

// Devices returns the number of devices of all pods.
func (p PodSet) Devices() int64 { return p.DevicesPerPod * p.Pods }

// Facts are the properties of a workload that queries and decisions use.
type Facts struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Queue is the name of the LocalQueue.
	Queue string `json:"queue"`
	// ClusterQueue is the queue on the hub that holds the workload's quota.
	ClusterQueue string `json:"clusterQueue,omitempty"`
	// Remote is true if MultiKueue copies the workload to a worker, where the copy needs quota.
	Remote bool `json:"remote,omitempty"`
	// Preempts is true if the queue may preempt other workloads. Quota that these hold then counts,
	// too.
	Preempts bool `json:"preempts,omitempty"`
	// Reclaims is true if the queue may take back quota that other queues of its cohort borrow.
	Reclaims bool `json:"reclaims,omitempty"`
	// PodSets are the pod sets that request devices, the most devices per pod first.
	PodSets []PodSet `json:"podSets,omitempty"`
	// Unmeasured are the names of other extended resources, resource claims, topologies and node
	// labels that pods request. The gate has no metrics of these.
	Unmeasured []string `json:"unmeasured,omitempty"`
	// References are the objects that must exist on the cluster, of the kinds in the gate's
	// prerequisites.
	References []Reference `json:"references,omitempty"`
}

// Key returns namespace/name.
func (f Facts) Key() string { return f.Namespace + "/" + f.Name }

// Variables are the names that a gate's queries may use, without the leading $. Flavor
// labels, node selectors, labels and annotations have one variable per key, in which _ replaces
// characters that are not allowed: $node_selector_topology_kubernetes_io_zone.
var Variables = []string{"namespace", "queue", "cluster_queue", "flavor", "resource", "model",
	"devices_per_pod", "pods", "devices_total", varCPU, varMemory, varShareMemory, varShareMemoryRatio, varShareCores, varRequiredTopology,
	varFlavorLabel + "*", varNodeSelector + "*", varLabel + "*", varAnnotation + "*"}

const (
	varFlavorLabel  = "flavor_label_"
	varNodeSelector = "node_selector_"
)

// Vars returns the values of Variables and ProfileVariables for one pod set. Unknown facts have no key.
func (f Facts) Vars(p PodSet) map[string]string {
	vars := map[string]string{
		"devices_per_pod": strconv.FormatInt(p.DevicesPerPod, 10),
		"pods":            strconv.FormatInt(p.Pods, 10),
		"devices_total":   strconv.FormatInt(p.Devices(), 10),
	}
	for name, value := range map[string]string{
		"namespace": f.Namespace, "queue": f.Queue, "cluster_queue": f.ClusterQueue,
		"flavor": p.Flavor, "resource": p.Resource, "model": p.Model,
		varRequiredTopology: p.RequiredTopology,
	} {
		if value != "" {
			vars[name] = value
		}
	}
	p.Requests.addVars(vars)
	if p.Share != nil {
		p.Share.addVars(vars)
	}
	if p.Profile != nil {
		p.Profile.addVars(vars)
	}
	addLabels(vars, varFlavorLabel, p.FlavorLabels)
	addLabels(vars, varNodeSelector, p.NodeSelector)
	maps.Copy(vars, p.Labels)
	return vars
}

// addLabels adds one variable per label. If two keys give the same variable name but have
// different values, the variable stays unset.
func addLabels(vars map[string]string, prefix string, labels map[string]string) {
	ambiguous := map[string]bool{}
	for key, value := range labels {
		name := variableOf(prefix, key)
		if old, ok := vars[name]; ok && old != value {
			ambiguous[name] = true
		}
		vars[name] = value
	}
	for name := range ambiguous {
		delete(vars, name)
	}
}

// variableOf is the variable of a label.
func variableOf(prefix, key string) string { return prefix + strings.Map(variableRune, key) }

func variableRune(r rune) rune {
	if r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
		return r
	}
	return '_'
}

// Options of a gate for FactsOf.
type Options struct {
	// ModelFrom are the node label keys that hold the device model, in order of preference.
	ModelFrom []string
	// Aliases map a label value to the model in the metrics.
	Aliases map[string]string
	// Flavor returns a ResourceFlavor. If the function is nil, flavors add nothing to pods.
	Flavor func(name string) kueue.ResourceFlavorSpec
	// OwnLabels is the node selector with which the gate itself pins pods to a cluster.
	OwnLabels map[string]string
	// OwnTolerations are those that the gate adds to such pods.
	OwnTolerations []corev1.Toleration
	// AllDevices includes devices that the exporter does not measure. It is set for gates with
	// their own fit query.
	AllDevices bool
	// Requests fits CPU and memory. It is set for gates whose fit query reads them, as the default one does.
	Requests bool
	// Shares fits parts of devices. It is set for gates whose own fit query reads them.
	Shares bool
	// ClaimTemplate returns the claim of a ResourceClaimTemplate in the workload's namespace, or nil if
	// there is none. If the function is nil, claims are whole devices.
	ClaimTemplate func(name string) *resourcev1.ResourceClaimSpec
	// Topology fits the domains of a required topology, and TPUSlices slices of several hosts.
	// They are set for gates whose own fit query reads them.
	Topology, TPUSlices bool
	// Profile of the workload's job, for gates whose queries read it. Nil if there is none.
	Profile *v1alpha1.JobProfileStatus
	// Copied is true if MultiKueue copies the workload to a worker.
	Copied bool
	// Labels are the variables of labels and annotations that the gate's queries read.
	Labels map[string]bool
	// Prerequisites are the kinds of objects to which References are read.
	Prerequisites []v1alpha1.PrerequisiteKind
}

// OptionsOf returns the options of a gate.
func OptionsOf(spec *v1alpha1.PlacementGateSpec, flavor func(name string) kueue.ResourceFlavorSpec) Options {
	opts := Options{ModelFrom: spec.ModelFrom, Aliases: spec.Aliases, Flavor: flavor, AllDevices: spec.Queries.Fit != "", Requests: fitsRequests(spec.Queries.Fit),
		Shares: fitsShares(spec.Queries.Fit), Topology: fitsTopology(spec.Queries.Fit), TPUSlices: fitsTPUSlices(spec.Queries.Fit), Labels: labelsRead(spec)}
	if spec.PodSetUpdates != nil {
		opts.OwnLabels, opts.OwnTolerations = spec.PodSetUpdates.NodeSelector, spec.PodSetUpdates.Tolerations
	}
	for _, p := range spec.Prerequisites {
		opts.Prerequisites = append(opts.Prerequisites, p.Kind)
	}
	return opts
}

// FactsOf returns a workload's facts from its pod sets and the flavors that Kueue assigned.
// Pod sets without devices are omitted, because they fit on every cluster. The caller sets
// Remote, Preempts and Reclaims.
func FactsOf(wl *kueue.Workload, opts Options) Facts {
	facts := Facts{UID: string(wl.UID), Namespace: wl.Namespace, Name: wl.Name, Queue: string(wl.Spec.QueueName),
		References: referencesOf(wl, opts.Prerequisites)}
	if wl.Status.Admission != nil {
		facts.ClusterQueue = string(wl.Status.Admission.ClusterQueue)
	}
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		p := podSetOf(wl, set, opts)
		if p.Pods == 0 {
			continue
		}
		facts.Unmeasured = append(facts.Unmeasured, unmeasuredRequests(&set.Template, p)...)
		if p.Share != nil && p.Share.Claimed {
			_, names := shareOfClaim(&set.Template.Spec, opts.ClaimTemplate)
			facts.Unmeasured = append(facts.Unmeasured, names...)
		}
		facts.Unmeasured = append(facts.Unmeasured, unmeasuredTopology(set, p, opts)...)
		labels, unmeasured := nodeLabelsOf(&set.Template.Spec, p, opts)
		p.NodeLabels, facts.Unmeasured = labels, append(facts.Unmeasured, unmeasured...)
		if p.DevicesPerPod > 0 {
			facts.PodSets = append(facts.PodSets, p)
		}
	}
	slices.Sort(facts.Unmeasured)
	facts.Unmeasured = slices.Compact(facts.Unmeasured)
	slices.SortStableFunc(facts.PodSets, func(a, b PodSet) int { return cmp.Compare(b.DevicesPerPod, a.DevicesPerPod) })
	return facts
}

// podSetOf returns the requests of one pod set. Resource and DevicesPerPod stay empty if the
// pods request no device that counts.
func podSetOf(wl *kueue.Workload, set *kueue.PodSet, opts Options) PodSet {
	p := PodSet{Name: string(set.Name), Pods: int64(set.Count), NodeSelector: set.Template.Spec.NodeSelector, Labels: labelsOf(wl, set, opts.Labels)}
	assigned, admitted := assignmentOf(wl, set.Name), p.Pods
	if assigned != nil && assigned.Count != nil {
		admitted = int64(*assigned.Count)
	}
	// The copy requests all pods, whatever number Kueue on the hub admitted: fewer by partial admission,
	// or because some had finished before the workload was evicted (status.reclaimablePods).
	switch {
	case !opts.Copied: // the count of an elastic job that is scaled down changes in the spec only
		p.Pods = min(admitted, p.Pods)
	case set.MinCount != nil: // Kueue on the worker admits as many as it has quota for
		p.MinPods = int64(*set.MinCount)
	}
	resource, devices := podDevices(&set.Template.Spec, opts.AllDevices)
	if devices == 0 && opts.AllDevices {
		resource, devices = claimedDevices(&set.Template.Spec, assigned, admitted)
	}
	var kai *Share
	if share, n, ok := shareOfKAI(&set.Template); devices == 0 && opts.Shares && ok {
		resource, devices, kai = kaiResource, n, &share
	}
	if devices == 0 {
		return p
	}
	if assigned != nil {
		p.Flavor = string(assigned.Flavors[resource])
	}
	if opts.Flavor != nil && p.Flavor != "" {
		p.FlavorLabels = opts.Flavor(p.Flavor).NodeLabels
	}
	p.Model = withMIGProfile(modelOf(&set.Template.Spec, p.FlavorLabels, opts), string(resource))
	if opts.AllDevices || !strings.HasSuffix(p.Model, sharedModelSuffix) {
		p.Resource, p.DevicesPerPod = string(resource), devices
	}
	if opts.Requests {
		p.Requests = requestsOf(&set.Template.Spec)
	}
	p.Tolerations = tolerationsOf(&set.Template.Spec, assigned, opts)
	if opts.Topology {
		p.RequiredTopology = requiredTopologyOf(set)
	}
	if opts.Shares {
		p.Model = strings.TrimSuffix(p.Model, sharedModelSuffix)
		p.Share = p.requestedShare(&set.Template.Spec, resource, kai, opts)
	}
	p.Profile = profileOf(opts.Profile, p.Model)
	return p
}

// requestedShare returns the part of a device that each pod requests, or nil. kai is the part that
// annotations of KAI Scheduler request.
func (p PodSet) requestedShare(spec *corev1.PodSpec, resource corev1.ResourceName, kai *Share, opts Options) *Share {
	switch {
	case kai != nil:
		return kai
	case opts.ClaimTemplate != nil && p.isClaimed(spec):
		share, _ := shareOfClaim(spec, opts.ClaimTemplate)
		return &share
	}
	return shareOf(spec, resource)
}

// assignmentOf returns Kueue's assignment for a pod set, or nil.
func assignmentOf(wl *kueue.Workload, name kueue.PodSetReference) *kueue.PodSetAssignment {
	if wl.Status.Admission == nil {
		return nil
	}
	for i := range wl.Status.Admission.PodSetAssignments {
		if wl.Status.Admission.PodSetAssignments[i].Name == name {
			return &wl.Status.Admission.PodSetAssignments[i]
		}
	}
	return nil
}

// With returns the facts with the requests of other workloads that need room on the same
// cluster. Pod sets of the same shape become one, so that they share their queries.
func (f Facts) With(others ...Facts) Facts {
	f.PodSets, f.Unmeasured, f.References = slices.Clone(f.PodSets), slices.Clone(f.Unmeasured), slices.Clone(f.References)
	for _, other := range others {
		for _, p := range other.PodSets {
			if i := slices.IndexFunc(f.PodSets, p.hasShapeOf); i >= 0 {
				f.PodSets[i].Pods += p.Pods
			} else {
				f.PodSets = append(f.PodSets, p)
			}
		}
		f.Unmeasured = append(f.Unmeasured, other.Unmeasured...)
		f.References = append(f.References, other.References...)
	}
	f.References = sortReferences(f.References)
	slices.Sort(f.Unmeasured)
	f.Unmeasured = slices.Compact(f.Unmeasured)
	slices.SortStableFunc(f.PodSets, func(a, b PodSet) int { return cmp.Compare(b.DevicesPerPod, a.DevicesPerPod) })
	return f
}

// hasShapeOf reports whether two pod sets differ in name and number of pods only, and need all pods.
func (p PodSet) hasShapeOf(other PodSet) bool {
	return p.MinPods == 0 && other.MinPods == 0 && p.Resource == other.Resource && p.Model == other.Model && p.Flavor == other.Flavor && p.DevicesPerPod == other.DevicesPerPod &&
		p.Requests == other.Requests && slices.EqualFunc(p.NodeLabels, other.NodeLabels, NodeLabel.equal) && slices.Equal(p.Tolerations, other.Tolerations) &&
		p.Share.equal(other.Share) && p.Profile.equal(other.Profile) && p.RequiredTopology == other.RequiredTopology && maps.Equal(p.FlavorLabels, other.FlavorLabels) && maps.Equal(p.NodeSelector, other.NodeSelector) && maps.Equal(p.Labels, other.Labels)
}

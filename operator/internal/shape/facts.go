package shape

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// PodSet is what one pod set of a workload asks of a cluster.
type PodSet struct {
	Name string `json:"name"`
	// Resource that counts the devices, such as nvidia.com/gpu.
	Resource string `json:"resource"`
	// Model in the form of the metrics, such as NVIDIA-H100-80GB-HBM3; empty = any.
	Model         string `json:"model,omitempty"`
	Flavor        string `json:"flavor,omitempty"`
	DevicesPerPod int64  `json:"devicesPerPod"`
	Pods          int64  `json:"pods"`
	// FlavorLabels are the flavor's nodeLabels, NodeSelector is the pods' own.
	FlavorLabels map[string]string `json:"flavorLabels,omitempty"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// Devices of the whole pod set.
func (p PodSet) Devices() int64 { return p.DevicesPerPod * p.Pods }

// Facts of one workload that queries and decisions see.
type Facts struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Queue     string `json:"queue"`
	// ClusterQueue of the hub that holds the workload's quota.
	ClusterQueue string `json:"clusterQueue,omitempty"`
	// Remote: MultiKueue copies it to a worker, where it needs quota of a queue.
	Remote bool `json:"remote,omitempty"`
	// Preempts: its queue may take quota from others, so that what is reserved is no bound.
	Preempts bool `json:"preempts,omitempty"`
	// PodSets that ask for devices, the most devices per pod first.
	PodSets []PodSet `json:"podSets,omitempty"`
	// Unmeasured is what pods ask for besides, of which nobody knows what is free:
	// extended resources and claims.
	Unmeasured []string `json:"unmeasured,omitempty"`
}

// Key is namespace/name.
func (f Facts) Key() string { return f.Namespace + "/" + f.Name }

// Variables that a gate's queries may use. The labels of the flavor's nodes and
// the pods' node selector are named by their keys, with _ for what no name may
// hold: $node_selector_topology_kubernetes_io_zone.
var Variables = []string{"namespace", "queue", "cluster_queue", "flavor", "resource", "model",
	"devices_per_pod", "pods", "devices_total", varFlavorLabel + "*", varNodeSelector + "*"}

const (
	varFlavorLabel  = "flavor_label_"
	varNodeSelector = "node_selector_"
)

// Vars renders one pod set's facts. A fact that is absent has no key.
func (f Facts) Vars(p PodSet) map[string]string {
	vars := map[string]string{
		"devices_per_pod": strconv.FormatInt(p.DevicesPerPod, 10),
		"pods":            strconv.FormatInt(p.Pods, 10),
		"devices_total":   strconv.FormatInt(p.Devices(), 10),
	}
	for name, value := range map[string]string{
		"namespace": f.Namespace, "queue": f.Queue, "cluster_queue": f.ClusterQueue,
		"flavor": p.Flavor, "resource": p.Resource, "model": p.Model,
	} {
		if value != "" {
			vars[name] = value
		}
	}
	addLabels(vars, varFlavorLabel, p.FlavorLabels)
	addLabels(vars, varNodeSelector, p.NodeSelector)
	return vars
}

// addLabels names each label by its key. Two keys of one name and different
// values are as good as absent.
func addLabels(vars map[string]string, prefix string, labels map[string]string) {
	ambiguous := map[string]bool{}
	for key, value := range labels {
		name := prefix + strings.Map(nameRune, key)
		if old, ok := vars[name]; ok && old != value {
			ambiguous[name] = true
		}
		vars[name] = value
	}
	for name := range ambiguous {
		delete(vars, name)
	}
}

func nameRune(r rune) rune {
	if r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
		return r
	}
	return '_'
}

// ShapeOptions say where a device model is read.
type Options struct {
	// ModelFrom are node-label keys, tried in order.
	ModelFrom []string
	// Aliases turn a label's value into the model on the metrics.
	Aliases map[string]string
	// FlavorLabels returns the nodeLabels of a ResourceFlavor; nil = none known.
	FlavorLabels func(flavor string) map[string]string
	// AllDevices count, also those of which the exporter does not tell what is free:
	// the gate has a fit query of its own.
	AllDevices bool
}

// ShapeOptionsOf a gate.
func OptionsOf(spec *v1alpha1.PlacementGateSpec, flavorLabels func(flavor string) map[string]string) Options {
	return Options{ModelFrom: spec.ModelFrom, Aliases: spec.Aliases, FlavorLabels: flavorLabels,
		AllDevices: spec.Queries.Fit != ""}
}

// ShapeOf reads a workload's facts from its pod sets and from the flavors that
// Kueue assigned to them. Pod sets without devices are left out: they fit anywhere.
func FactsOf(wl *kueue.Workload, opts Options) Facts {
	facts := Facts{UID: string(wl.UID), Namespace: wl.Namespace, Name: wl.Name, Queue: string(wl.Spec.QueueName)}
	if wl.Status.Admission != nil {
		facts.ClusterQueue = string(wl.Status.Admission.ClusterQueue)
	}
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		p := podSetOf(wl, set, opts)
		if p.Pods == 0 {
			continue
		}
		facts.Unmeasured = append(facts.Unmeasured, unmeasuredResources(&set.Template.Spec, p.Resource)...)
		if p.DevicesPerPod > 0 {
			facts.PodSets = append(facts.PodSets, p)
		}
	}
	slices.Sort(facts.Unmeasured)
	facts.Unmeasured = slices.Compact(facts.Unmeasured)
	slices.SortStableFunc(facts.PodSets, func(a, b PodSet) int { return cmp.Compare(b.DevicesPerPod, a.DevicesPerPod) })
	return facts
}

// podSetOf a workload. One whose devices do not count asks for none.
func podSetOf(wl *kueue.Workload, set *kueue.PodSet, opts Options) PodSet {
	p := PodSet{Name: string(set.Name), Pods: int64(set.Count), NodeSelector: set.Template.Spec.NodeSelector}
	assigned := assignmentOf(wl, set.Name)
	if assigned != nil && assigned.Count != nil {
		p.Pods = int64(*assigned.Count)
	}
	resource, devices := podDevices(&set.Template.Spec, opts.AllDevices)
	if devices == 0 {
		return p
	}
	if assigned != nil {
		p.Flavor = string(assigned.Flavors[resource])
	}
	if opts.FlavorLabels != nil && p.Flavor != "" {
		p.FlavorLabels = opts.FlavorLabels(p.Flavor)
	}
	p.Model = migModelOf(modelOf(&set.Template.Spec, p.FlavorLabels, opts), string(resource))
	if opts.AllDevices || !strings.HasSuffix(p.Model, sharedModel) {
		p.Resource, p.DevicesPerPod = string(resource), devices
	}
	return p
}

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

func modelOf(spec *corev1.PodSpec, flavorLabels map[string]string, opts Options) string {
	affinity := requiredLabels(spec.Affinity)
	for _, labels := range []map[string]string{spec.NodeSelector, affinity, flavorLabels} {
		for _, key := range opts.ModelFrom {
			if value := labels[key]; value != "" {
				if alias, ok := opts.Aliases[value]; ok {
					value = alias
				}
				return NormalizeModel(value)
			}
		}
	}
	return ""
}

// instanceOf a model, where the resource is one of MIG instances: nodes are labeled
// with the device that these are cut off, and the metrics name the profile, where
// mig-1g.10gb.me is a 1g.10gbme.
func migModelOf(model, resource string) string {
	profile, ok := strings.CutPrefix(strings.TrimSuffix(resource, sharedResource), migResource)
	if !ok || model == "" || strings.Contains(model, "-MIG-") {
		return model
	}
	return model + "-MIG-" + strings.Replace(profile, "gb.", "gb", 1)
}

// NormalizeModel writes a model as GPU feature discovery does: blanks become dashes.
func NormalizeModel(model string) string {
	return strings.Join(strings.Fields(model), "-")
}

// requiredLabels are the labels that every term of the required node affinity
// pins to one value.
func requiredLabels(affinity *corev1.Affinity) map[string]string {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	var common map[string]string
	for i, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		pinned := map[string]string{}
		for _, e := range term.MatchExpressions {
			if e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
				pinned[e.Key] = e.Values[0]
			}
		}
		if i == 0 {
			common = pinned
			continue
		}
		for key, value := range common {
			if pinned[key] != value {
				delete(common, key)
			}
		}
	}
	return common
}

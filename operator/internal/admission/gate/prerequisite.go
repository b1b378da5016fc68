package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// LabelObject is the label with the object's name in the result of a prerequisite's own query.
const LabelObject = "name"

// objectSeries are the series that report the objects of a kind, and the label with the object's
// name. A namespace that is being deleted takes no workload. Without honorLabels, a scrape renames
// the label namespace to exported_namespace: such a cluster reports nothing about the objects.
type objectSeries struct{ selector, label string }

var defaultObjectSeries = map[v1alpha1.PrerequisiteKind]objectSeries{
	v1alpha1.PrerequisiteNamespace:             {`kube_namespace_status_phase{phase="Active",namespace="$namespace",exported_namespace=""} == 1`, "namespace"},
	v1alpha1.PrerequisiteLocalQueue:            {`kueue_local_queue_status{namespace="$namespace",exported_namespace=""}`, "name"},
	v1alpha1.PrerequisiteServiceAccount:        {`kube_serviceaccount_info{namespace="$namespace",exported_namespace=""}`, "serviceaccount"},
	v1alpha1.PrerequisiteConfigMap:             {`kube_configmap_info{namespace="$namespace",exported_namespace=""}`, "configmap"},
	v1alpha1.PrerequisiteSecret:                {`kube_secret_info{namespace="$namespace",exported_namespace=""}`, "secret"},
	v1alpha1.PrerequisitePersistentVolumeClaim: {`kube_persistentvolumeclaim_info{namespace="$namespace",exported_namespace=""}`, "persistentvolumeclaim"},
}

// prerequisiteQueries return two queries for each prerequisite of a gate: the objects in the
// workload's namespace, and the clusters that report objects of the kind in any namespace. Without
// the second one, a cluster without the object could not be distinguished from a cluster without
// kube-state-metrics.
func prerequisiteQueries(spec *v1alpha1.PlacementGateSpec, label string) []Query {
	var list []Query
	for i := range spec.Prerequisites {
		p := &spec.Prerequisites[i]
		expr, object := p.Query, LabelObject
		if series, ok := defaultObjectSeries[p.Kind]; ok && expr == "" {
			expr, object = fmt.Sprintf("group by (%s, %s) (%s)", label, series.label, series.selector), series.label
		}
		list = append(list,
			Query{Name: "prerequisites/" + string(p.Kind), Expr: expr, Remote: true, Prerequisite: p.Kind, ObjectLabel: object},
			Query{Name: "prerequisites/" + string(p.Kind) + "/reported", Expr: fmt.Sprintf("count by (%s) (%s\n)", label, expr), Remote: true, Prerequisite: p.Kind})
	}
	return list
}

// PrerequisiteResult states which objects of one kind exist on a cluster, in the workload's
// namespace.
type PrerequisiteResult struct {
	Kind v1alpha1.PrerequisiteKind `json:"kind"`
	// Names of the existing objects.
	Names map[string]bool `json:"names,omitempty"`
	// Reported is true if the cluster reports objects of the kind at all. Otherwise the absence of
	// an object means nothing.
	Reported bool `json:"reported,omitempty"`
	// EvaluatedAt is the time of the older of both queries. Zero means that no query succeeded yet.
	EvaluatedAt time.Time `json:"evaluatedAt,omitzero"`
}

// isUsable reports whether the absence of an object from the result means that it does not exist. If
// no query succeeded yet, EvaluatedAt is zero, and so too old.
func (p PrerequisiteResult) isUsable(e *evaluation) bool {
	return p.Reported && e.now.Sub(p.EvaluatedAt) <= e.rules.MaxSampleAge
}

// hasPrerequisites is the rule that every object that the workload refers to exists on the
// cluster. Unknown objects exclude no cluster.
func hasPrerequisites(c *Candidate, e *evaluation) []BrokenRule {
	missing, _ := e.prerequisites(c)
	if len(missing) == 0 {
		return nil
	}
	return []BrokenRule{{RejectPrerequisite, listReferences(missing)}}
}

// prerequisites returns the objects that the cluster lacks, and those of which nothing is known.
// A cluster without the workload's namespace lacks that alone: its objects are created after it.
func (e *evaluation) prerequisites(c *Candidate) (missing, unknown []shape.Reference) {
	if !e.facts.Remote {
		return nil, nil
	}
	for _, ref := range e.facts.References {
		i := slices.IndexFunc(c.Prerequisites, func(p PrerequisiteResult) bool { return p.Kind == ref.Kind })
		switch {
		case i < 0 || !c.Prerequisites[i].isUsable(e):
			unknown = append(unknown, ref)
		case c.Prerequisites[i].Names[ref.Name]:
		case ref.Kind == v1alpha1.PrerequisiteNamespace:
			return []shape.Reference{ref}, nil
		default:
			missing = append(missing, ref)
		}
	}
	return missing, unknown
}

// listReferences names the first references, sorted by kind.
func listReferences(refs []shape.Reference) string {
	const most = 5
	var names []string
	for i, ref := range refs {
		if i == most {
			names = append(names, fmt.Sprintf("%d more objects", len(refs)-most))
			break
		}
		names = append(names, ref.String())
	}
	return strings.Join(names, ", ")
}

// unknownPrerequisites states which objects a cluster may lack.
func unknownPrerequisites(refs []shape.Reference) string {
	return "it is unknown whether it has " + listReferences(refs)
}

package shape

import (
	"regexp"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Prefixes of variables for the labels and annotations of a workload.
const (
	varLabel      = "label_"
	varAnnotation = "annotation_"
)

// maxLabelValue bounds what a query contains of an annotation, in bytes. A longer value is cut, so that it equals none
// that a metric has.
const maxLabelValue = 256

var labelVariable = regexp.MustCompile(`\$(label_|annotation_)(\w+)`)

// labelsRead are the names of the label and annotation variables that the queries of a gate use. Others are not facts,
// so that workloads with other values wait in one line.
func labelsRead(spec *v1alpha1.PlacementGateSpec) map[string]bool {
	q := &spec.Queries
	queries := []string{q.Fit, q.Quota, q.Headroom, q.Capacity, q.Preference, q.EmptyFit, q.SampleTime}
	for i := range spec.Requirements {
		queries = append(queries, spec.Requirements[i].Query)
	}
	var names map[string]bool
	for _, match := range labelVariable.FindAllStringSubmatch(strings.Join(queries, "\n"), -1) {
		if names == nil {
			names = map[string]bool{}
		}
		names[match[1]+match[2]] = true
	}
	return names
}

// labelsOf are the labels and annotations of a workload that queries read, by variable. Those of the pod template
// replace those of the Workload, to which Kueue copies labels of the job.
func labelsOf(wl *kueue.Workload, set *kueue.PodSet, read map[string]bool) map[string]string {
	if len(read) == 0 {
		return nil
	}
	found := map[string]string{}
	for _, of := range []struct {
		prefix string
		labels map[string]string
	}{{varLabel, wl.Labels}, {varAnnotation, wl.Annotations}, {varLabel, set.Template.Labels}, {varAnnotation, set.Template.Annotations}} {
		vars := map[string]string{}
		addLabels(vars, of.prefix, of.labels)
		for key := range of.labels { // also of keys that give one name with different values, which stays unset
			delete(found, variableOf(of.prefix, key))
		}
		for name, value := range vars {
			if read[name] {
				found[name] = strings.ToValidUTF8(value[:min(len(value), maxLabelValue)], "")
			}
		}
	}
	return found
}

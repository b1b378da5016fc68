package main

import (
	"fmt"
	"regexp"
)

// equivalent selects mutants of a rule that no test can notice, because they have the same
// results for every input that exists.
type equivalent struct {
	rule   string
	change *regexp.Regexp
	reason string
}

var equivalents = []equivalent{
	{"PlimsollDeviceCriticalXID", regexp.MustCompile(`^increase -> rate `), aboveZero},
	{"PlimsollDeviceUnknownXID", regexp.MustCompile(`^increase -> rate `), aboveZero},
	{"PlimsollDeviceRowsRemapped", regexp.MustCompile(`^increase -> rate `), aboveZero},
	{"node:plimsoll_unusable:info", regexp.MustCompile(`^max -> sum in .*kube_node_status_condition`),
		"A condition is 0 or 1, so the sum is 0 if and only if the maximum is."},
	{"node_resource_state:plimsoll_excess_devices:sum", regexp.MustCompile(`^> -> >= in plimsoll_node_devices`),
		"No devices add nothing to the sum."},
	{"node_resource_model_state:plimsoll_devices:min", regexp.MustCompile(` in .*plimsoll_node_devices{state=~"allocatable\|free"} and on \(cluster, node, state\) node_resource_state:p|^matcher state=~"allocatable\|free" dropped`),
		"The subtraction keeps the devices that have an excess. The filter before it only saves work."},
	{"cluster_topology:plimsoll_tpu_chips:count", regexp.MustCompile(`^max -> (min|sum) in max by \(cluster, topology\)`),
		"x, y and z follow from the topology, so each topology has one series."},
}

const aboveZero = "Both are above 0 for the same input, and the message does not state the value."

// report is what a run found. Mutants are "FILE: RULE: CHANGE".
type report struct {
	total                 int
	equivalent, survivors []string
	// used are the indexes of the equivalents that selected a mutant.
	used map[int]bool
}

// unused returns the equivalents that selected no mutant: their rule has changed, or a test
// notices the mutant.
func (r *report) unused() []string {
	var texts []string
	for i, e := range equivalents {
		if !r.used[i] {
			texts = append(texts, fmt.Sprintf("%s: %s: no mutant is equivalent, remove it from equivalents.go", e.rule, e.change))
		}
	}
	return texts
}

// add adds a mutant that no test noticed.
func (r *report) add(original rule, m mutant) {
	text := fmt.Sprintf("%s: %s: %s", original.file, original.name(), m.change)
	for i, e := range equivalents {
		if e.rule == original.name() && e.change.MatchString(m.change) {
			if r.used == nil {
				r.used = map[int]bool{}
			}
			r.used[i] = true
			r.equivalent = append(r.equivalent, text+": "+e.reason)
			return
		}
	}
	r.survivors = append(r.survivors, text)
}

package ask

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/whatif"
)

// Report has the answers about jobs.
type Report struct {
	Jobs []Job `json:"jobs"`
}

// Job is the answer about one job.
type Job struct {
	// Job is KIND/NAME, or the name of a Workload without an owner.
	Job       string `json:"job"`
	Namespace string `json:"namespace"`
	Gate      string `json:"gate"`
	// Outcome is Now, Later, Never or Unknown.
	Outcome whatif.Outcome `json:"outcome"`
	// Cluster that would start the job; empty = none.
	Cluster string `json:"cluster,omitempty"`
	// Reason decides, as one word of operator/docs/admission.md. Why is the same as a sentence, with its numbers.
	Reason string `json:"reason"`
	Why    string `json:"why"`
	// Next is the event that can change the outcome.
	Next string `json:"next,omitempty"`
	// Flavors that the job is assumed to get, by pod set and resource.
	Flavors map[string]map[string]string `json:"flavors,omitempty"`
	// Assumed is what the answer takes for granted.
	Assumed []string `json:"assumed,omitempty"`
	// Explanation has the verdict on each cluster.
	Explanation gate.Explanation `json:"explanation"`
}

// ReportOf returns the report of answers to a question of one command.
func ReportOf(answers []*whatif.Answer) *Report {
	r := &Report{Jobs: []Job{}}
	for _, a := range answers {
		namespace, _, _ := strings.Cut(a.Workload, "/")
		job := Job{Job: a.Job, Namespace: namespace, Gate: a.Gate, Outcome: a.Outcome, Reason: a.Decision.Reason, Why: cmp.Or(a.Decision.Message, a.WaitsFor),
			Flavors: a.Flavors, Assumed: a.Assumed, Explanation: a.Explanation}
		if a.Problem != "" && a.Outcome == whatif.Unknown {
			job.Why = a.Problem
		}
		if a.Outcome == whatif.Now {
			job.Cluster = a.Decision.Order[0]
		} else {
			job.Next = a.Next
		}
		r.Jobs = append(r.Jobs, job)
	}
	return r
}

// Worst is the least welcome outcome of the jobs.
func (r *Report) Worst() whatif.Outcome {
	order := []whatif.Outcome{whatif.Now, whatif.Later, whatif.Never, whatif.Unknown}
	worst := 0
	for _, job := range r.Jobs {
		worst = max(worst, slices.Index(order, job.Outcome))
	}
	return order[worst]
}

// Print writes the report: one job with its clusters, or one line per job.
func (r *Report) Print(a *command.App, out *command.OutputFlag) error {
	return out.Print(a.Out, "FitReport", r, func(w io.Writer) {
		if len(r.Jobs) == 1 {
			r.Jobs[0].writeRows(w, a, out.IsWide())
			return
		}
		severalGates := slices.ContainsFunc(r.Jobs, func(j Job) bool { return j.Gate != r.Jobs[0].Gate })
		row := func(namespace, job, gateName string, others ...string) {
			cells := []string{namespace, job}
			if severalGates {
				cells = append(cells, gateName)
			}
			format.Row(w, append(cells, others...)...)
		}
		row("NAMESPACE", "JOB", "GATE", "OUTCOME", "CLUSTER", "WHY")
		for _, job := range r.Jobs {
			row(job.Namespace, job.Job, job.Gate, job.outcome(a), cmp.Or(job.Cluster, "-"), job.Why)
		}
	})
}

func (j *Job) outcome(a *command.App) string {
	switch j.Outcome {
	case whatif.Now:
		return a.Paint.Good("now")
	case whatif.Never, whatif.Unknown:
		return a.Paint.Bad(strings.ToLower(string(j.Outcome)))
	case whatif.Later:
	}
	return a.Paint.Warning("later")
}

func (j *Job) writeRows(w io.Writer, a *command.App, wide bool) {
	text := j.outcome(a)
	if j.Cluster != "" {
		text += ", on " + a.Paint.Good(j.Cluster)
	}
	format.Row(w, "Starts:", text)
	format.Row(w, "Why:", j.Why)
	if j.Next != "" {
		format.Row(w, "Next:", j.Next)
	}
	for _, podSet := range slices.Sorted(maps.Keys(j.Flavors)) {
		resources := map[string][]string{} // by flavor
		for _, resource := range slices.Sorted(maps.Keys(j.Flavors[podSet])) {
			flavor := string(j.Flavors[podSet][resource])
			resources[flavor] = append(resources[flavor], string(resource))
		}
		for _, flavor := range slices.Sorted(maps.Keys(resources)) {
			format.Row(w, "Flavor:", fmt.Sprintf("%s for %s of pods %s", flavor, strings.Join(resources[flavor], ", "), podSet))
		}
	}
	for _, assumed := range j.Assumed {
		format.Row(w, "Assumed:", assumed)
	}
	e := j.Explanation
	e.WaitsFor, e.Next, e.Workload = "", "", j.Namespace+" "+j.Job
	if j.Why == e.Problem {
		e.Problem = ""
	}
	report := explain.Report{Explanation: e, From: explain.FromOperator}
	report.WriteRows(w, a.Paint, a.Now(), wide)
}

// itemsOf are the objects of a list.
func itemsOf(list client.ObjectList) (objects []client.Object) {
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	for i := range items.Len() {
		objects = append(objects, items.Index(i).Addr().Interface().(client.Object)) //nolint:forcetypeassert // all kinds are objects
	}
	return objects
}

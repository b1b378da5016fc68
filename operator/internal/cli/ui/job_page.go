package ui

import (
	"context"
	"io"
	"net/url"

	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/cli/explanation"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// jobPage shows the story of a job, and what explain workload says about it.
func jobPage(ctx context.Context, v *view, q url.Values) *page {
	namespace, name := q.Get("namespace"), q.Get("name")
	p := &page{Title: "Job", Fields: []field{{"namespace", "Namespace", namespace}, {"name", "Job, such as job/train-1", name}}}
	if namespace == "" || name == "" {
		p.Sections = []section{{Text: "Enter the namespace and the name of a job, as KIND/NAME, or choose one on the page Queue."}}
		return p
	}
	wl, err := hubclient.FindWorkload(ctx, v.hub, namespace, name)
	if err != nil {
		v.notes.add(err.Error())
		p.Sections = []section{{Text: "The job is not shown, because its workload can't be read."}}
		return p
	}
	p.Title = format.Printable("Job " + namespace + " " + name)
	state := explanation.StateOf(ctx, v.hub, wl, v.app.Now())
	p.Sections = []section{{Title: "Story", Story: explain.Story(wl, state.Checks, state.ChecksUnknown, state.Record)}}
	for i, e := range p.Sections[0].Story {
		p.Sections[0].Story[i].Name, p.Sections[0].Story[i].Why = format.Printable(e.Name), format.Printable(e.Why)
	}
	report, err := remember(ctx, v.snapshot, "explain "+wl.Namespace+"/"+wl.Name, func(ctx context.Context) (*explain.Report, error) {
		return explanation.Workload(ctx, v.app, v.hub, &v.options.operator, wl)
	})
	if err != nil {
		v.notes.add("why the job is here: " + err.Error())
		return p
	}
	p.Sections = append(p.Sections, sectionsOf("Now", func(w io.Writer) { report.WriteRows(w, v.app.Paint, v.app.Now(), report.From == explain.FromOperator) })...)
	return p
}

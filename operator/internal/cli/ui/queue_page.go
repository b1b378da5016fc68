package ui

import (
	"cmp"
	"context"
	"net/url"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/cli/explanation"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// queueHelp says what the columns do not show.
const queueHelp = "PLACE is the order in which the gate decides; a job that fits may pass others that do not. Kueue orders the jobs that wait for quota. " +
	"EXPECTED START is known if a gate holds a cluster for the job, and the jobs there have a time limit."

// queuePage shows each waiting job: why it waits, since when, before whom, its expected start, and what would change it.
func queuePage(ctx context.Context, v *view, q url.Values) *page {
	namespace := q.Get("namespace")
	p := &page{Title: "Queue", Fields: []field{{"namespace", "Namespace", namespace}, {"q", "Filter", q.Get("q")}}}
	table := section{Text: queueHelp, Head: []string{"JOB", "NAMESPACE", "WAITS FOR", "SINCE", "PLACE", "EXPECTED START", "NEXT", "QUEUE", "PRIORITY"}}
	type queue struct {
		rows  [][]cell
		notes notes
	}
	found, err := remember(ctx, v.snapshot, "queue "+namespace, func(ctx context.Context) (queue, error) {
		list := &kueue.WorkloadList{}
		if err := v.hub.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return queue{}, err
		}
		var all []*waiting
		var lacking notes
		for i := range list.Items {
			state := explanation.StateOf(ctx, v.hub, &list.Items[i], v.app.Now())
			for _, note := range state.NotShown {
				lacking.add(note)
			}
			if state.Waiting {
				all = append(all, waitingOf(&list.Items[i], state, v.app.Now()))
			}
		}
		order(all, v.app.Now())
		var rows [][]cell
		for _, w := range all {
			rows = append(rows, v.waitingRow(w, namespace))
		}
		return queue{rows, lacking}, nil
	})
	if err != nil {
		v.notes.add(explainForbidden(err, namespace).Error())
		p.Sections = []section{{Text: "Which jobs wait is unknown: the workloads can't be read."}}
		return p
	}
	for _, note := range found.notes {
		v.notes.add(note)
	}
	if len(found.rows) == 0 {
		none := "No job waits."
		if namespace != "" {
			none = "No job waits in namespace " + format.Printable(namespace) + ", if the hub has it."
		}
		p.Sections = []section{{Text: none}}
		return p
	}
	table.Rows = found.rows
	p.Sections = []section{table.filtered("queue", q)}
	return p
}

func (v *view) waitingRow(w *waiting, namespace string) []cell {
	wl := w.workload
	job := linked(cmp.Or(hubclient.OwnerOf(wl), wl.Name), "job", url.Values{"namespace": {wl.Namespace}, "name": {wl.Name}})
	why := toned("warning", w.For)
	if w.Problem != "" {
		why = toned("bad", w.For+"; "+w.Problem)
	}
	priority := format.Unknown
	if wl.Spec.Priority != nil {
		priority = strconv.Itoa(int(*wl.Spec.Priority))
	}
	return []cell{job, text(wl.Namespace), why, text(format.Age(v.app.Now(), w.since)), text(w.placeText(namespace)), text(w.startText(v.app.Now())), text(w.Next), text(string(wl.Spec.QueueName)), text(priority)}
}

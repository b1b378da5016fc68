package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// Where an explanation comes from.
const (
	fromOperator = "operator"
	fromObjects  = "objects"
)

// workloadReport is what explain workload prints: the operator's explanation, or
// as much of it as the hub's objects tell.
type workloadReport struct {
	gate.Explanation
	Owner  string        `json:"owner,omitempty"`
	Queue  string        `json:"queue,omitempty"`
	Checks []checkReport `json:"checks,omitempty"`
	// From says who explains: operator or objects.
	From string `json:"from"`
	// NotShown is what could not be learned, and how it can be.
	NotShown []string `json:"notShown,omitempty"`
}

// checkReport is one admission check of the workload, ours or another's.
type checkReport struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	Ours    bool   `json:"ours,omitempty"`
}

func newExplainWorkload(a *app) *cobra.Command {
	var out output
	var operator operatorFlags
	cmd := &cobra.Command{
		Use:   "workload NAME|job/NAME",
		Short: "Where a workload is and why, or what it waits for",
		Long: `Where a workload is and why, or what it waits for.

With --operator-url the operator decides anew, writes nothing, and tells each
candidate's room, its score and what is promised there already. Without it, what
stands on the hub's objects is shown, and what that leaves open is said.

` + operatorHelp,
		Example: "  kubectl plimsoll explain workload job/train-1 -n team-a",
		Args:    exactly(1, "the name of a workload, or job/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			report, err := explainWorkload(cmd.Context(), a, &operator, args[0])
			if err != nil {
				return err
			}
			return out.print(a.Out, report, report.writer(a, out.wide()))
		},
		ValidArgsFunction: a.complete(workloadNames),
	}
	out.add(cmd)
	operator.add(cmd.Flags())
	return cmd
}

func explainWorkload(ctx context.Context, a *app, operator *operatorFlags, name string) (*workloadReport, error) {
	c, namespace, err := a.connect()
	if err != nil {
		return nil, err
	}
	wl, err := findWorkload(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	report := &workloadReport{Owner: ownerOf(wl), Queue: string(wl.Spec.QueueName), From: fromObjects}
	hub := &hubExplainer{client: c, report: report}
	if err := hub.readChecks(ctx, wl); err != nil {
		return nil, err
	}
	if operator.url == "" {
		hub.explain(ctx, wl, a.now())
		return report, nil
	}
	report.From = fromOperator
	if err := operator.get(ctx, "/explain/workload/"+wl.Namespace+"/"+wl.Name, &report.Explanation); err != nil || !report.Follower {
		return report, err
	}
	report.From, report.NotShown, report.Problem = fromObjects, []string{report.Problem}, ""
	hub.explain(ctx, wl, a.now())
	return report, nil
}

// findWorkload by its own name, or by KIND/NAME of the job that owns it.
func findWorkload(ctx context.Context, c client.Client, namespace, name string) (*kueue.Workload, error) {
	kind, job, ofJob := strings.Cut(name, "/")
	if !ofJob {
		wl := &kueue.Workload{}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, wl)
		if client.IgnoreNotFound(err) == nil && err != nil && !noSuchResource(err) {
			return nil, fmt.Errorf("no workload %s in namespace %s (a job's workload has a name of its own: try job/%s)", name, namespace, name)
		}
		return wl, reading("workload "+name, err)
	}
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, reading("workloads", err)
	}
	var found *kueue.Workload
	for i := range list.Items {
		if wl := &list.Items[i]; ownedBy(wl, kind, job) && (found == nil || newer(wl, found)) {
			found = wl
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no workload in namespace %s belongs to %s %s: does it exist, and name a queue in its label kueue.x-k8s.io/queue-name?", namespace, kind, job)
	}
	return found, nil
}

func ownedBy(wl *kueue.Workload, kind, name string) bool {
	kind = strings.TrimSuffix(strings.ToLower(kind), "s")
	for _, owner := range wl.OwnerReferences {
		if strings.ToLower(owner.Kind) == kind && owner.Name == name {
			return true
		}
	}
	return false
}

// newer says whether a speaks for the job rather than b: a live one before a
// finished one, then the younger.
func newer(a, b *kueue.Workload) bool {
	if kueuestate.IsFinished(a) != kueuestate.IsFinished(b) {
		return kueuestate.IsFinished(b)
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

func ownerOf(wl *kueue.Workload) string {
	for _, owner := range wl.OwnerReferences {
		return strings.ToLower(owner.Kind) + "/" + owner.Name
	}
	return ""
}

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

func newExplain(streams genericclioptions.IOStreams, flags *genericclioptions.ConfigFlags, connect connector) *cobra.Command {
	explain := &cobra.Command{Use: "explain", Short: "Explain a workload"}
	var output string
	var operator operatorFlags
	workload := &cobra.Command{
		Use:   "workload NAME|job/NAME",
		Short: "Where a workload is and why, or what it waits for",
		Long: `Where a workload is and why, or what it waits for.

With --operator-url the operator decides anew and tells each candidate's room, score
and ledger. Without it, what stands on the objects is shown, and what is missing is said.`,
		Args: exactly(1, "the name of a workload, or job/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := connect(flags)
			if err != nil {
				return err
			}
			wl, err := findWorkload(cmd.Context(), c, namespace, args[0])
			if err != nil {
				return err
			}
			e, missing, err := operator.explanation(cmd.Context(), wl)
			if err != nil {
				return err
			}
			if e == nil {
				if e, err = fromObjects(cmd.Context(), c, wl); err != nil {
					return err
				}
			}
			return printExplanation(streams, output, e, missing)
		},
	}
	workload.Flags().StringVarP(&output, "output", "o", "", "json, yaml, or text by default")
	operator.add(workload.Flags())
	explain.AddCommand(workload)
	return explain
}

// findWorkload by its own name, or by the job that owns it.
func findWorkload(ctx context.Context, c client.Client, namespace, name string) (*kueue.Workload, error) {
	job, ofJob := strings.CutPrefix(name, "job/")
	if !ofJob {
		wl := &kueue.Workload{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, wl); err != nil {
			return nil, fmt.Errorf("%w (a job's workload has a name of its own: try job/%s)", err, name)
		}
		return wl, nil
	}
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		for _, owner := range list.Items[i].OwnerReferences {
			if owner.Kind == "Job" && owner.Name == job {
				return &list.Items[i], nil
			}
		}
	}
	return nil, fmt.Errorf("no workload in namespace %s belongs to the job %s: does it name a queue in the label kueue.x-k8s.io/queue-name?", namespace, job)
}

// fromObjects tells what stands on the hub's objects.
func fromObjects(ctx context.Context, c client.Client, wl *kueue.Workload) (*gate.Explanation, error) {
	e := &gate.Explanation{Workload: client.ObjectKeyFromObject(wl).String(), Nominated: wl.Status.NominatedClusterNames}
	if wl.Status.ClusterName != nil {
		e.Cluster = *wl.Status.ClusterName
	}
	var err error
	if e.Dispatch, err = gate.DecodeDispatch(wl.Annotations); err != nil {
		e.Problem = err.Error()
	}
	check, err := ourCheck(ctx, c, wl)
	if err != nil {
		return nil, err
	}
	if check != nil {
		e.State, e.Message = string(check.State), check.Message
	}
	e.WaitsFor = waitsFor(e, wl)
	return e, addScores(ctx, c, e)
}

// ourCheck is the workload's entry of a check that a PlacementGate decides.
func ourCheck(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.AdmissionCheckState, error) {
	for i := range wl.Status.AdmissionChecks {
		state := &wl.Status.AdmissionChecks[i]
		check := &kueue.AdmissionCheck{}
		err := c.Get(ctx, client.ObjectKey{Name: string(state.Name)}, check)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && check.Spec.ControllerName == v1alpha1.ControllerName {
			return state, nil
		}
	}
	return nil, nil
}

func waitsFor(e *gate.Explanation, wl *kueue.Workload) string {
	switch {
	case gate.IsFinished(wl):
		return "nothing: it is finished"
	case e.Cluster != "":
		return "nothing: it is on " + e.Cluster
	case !gate.HoldsQuota(wl):
		return "quota in its ClusterQueue"
	case len(e.Nominated) > 0:
		return "one of " + strings.Join(e.Nominated, ", ") + " to admit it"
	case e.State == "":
		return "no gate decides its queue"
	}
	return e.Message
}

// addScores of every cluster that has some.
func addScores(ctx context.Context, c client.Client, e *gate.Explanation) error {
	list := &clusterv1alpha1.AddOnPlacementScoreList{}
	if err := c.List(ctx, list); err != nil {
		return fmt.Errorf("list scores: %w", err)
	}
	at := map[string]int{}
	for _, object := range list.Items {
		i, ok := at[object.Namespace]
		if !ok {
			i = len(e.Clusters)
			at[object.Namespace] = i
			e.Clusters = append(e.Clusters, gate.ClusterExplanation{Verdict: gate.Verdict{Cluster: object.Namespace}, Scores: map[string]gate.Score{}})
		}
		for _, s := range object.Status.Scores {
			score := gate.Score{Value: s.Value}
			if object.Status.ValidUntil != nil {
				score.ValidUntil = object.Status.ValidUntil.Time
			}
			e.Clusters[i].Scores[gate.ScoreKey(object.Name, s.Name)] = score
		}
	}
	return nil
}

func printExplanation(streams genericclioptions.IOStreams, output string, e *gate.Explanation, missing string) error {
	switch output {
	case "json":
		encoder := json.NewEncoder(streams.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(e)
	case "yaml":
		text, err := yaml.Marshal(e)
		if err != nil {
			return err
		}
		_, err = streams.Out.Write(text)
		return err
	case "":
		return writeExplanation(streams.Out, e, missing, time.Now())
	}
	return usageError{fmt.Errorf("-o must be json or yaml, not %q", output)}
}

func writeExplanation(out io.Writer, e *gate.Explanation, missing string, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s:\t%s\n", name, value)
		}
	}
	row("Workload", e.Workload)
	row("Gate", e.Gate)
	if e.State != "" {
		row("Check", e.State+": "+e.Message)
	}
	row("Cluster", e.Cluster)
	row("Nominated", strings.Join(e.Nominated, ", "))
	row("Waits for", e.WaitsFor)
	if e.Dispatch.Attempt > 0 {
		row("Dispatched", fmt.Sprintf("attempt %d, %s ago, to %s: %s", e.Dispatch.Attempt, now.Sub(e.Dispatch.NominatedAt).Round(time.Second),
			strings.Join(e.Dispatch.Nominated, ", "), e.Dispatch.Reason))
	}
	row("Problem", e.Problem)
	row("Not shown", missing)
	if len(e.Clusters) > 0 {
		fmt.Fprintf(w, "\nCLUSTER\tROOM\tIN FLIGHT\tSCORES\tWHY\n")
	}
	for _, c := range e.Clusters {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", c.Cluster, room(c.Room), len(c.Ledger), scores(c.Scores, now), c.Why)
	}
	return w.Flush()
}

func room(n gate.Number) string {
	if !n.Known {
		return "unknown"
	}
	return fmt.Sprintf("%g", n.Value)
}

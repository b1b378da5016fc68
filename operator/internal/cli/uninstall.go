package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// removalStep is a step of the removal of Plimsoll from a hub.
type removalStep struct {
	Step    string   `json:"step"`
	Objects []string `json:"objects,omitempty"` // that stand in the way
	Command string   `json:"command"`
	// Done is true if nothing stands in the way of the next step.
	Done bool `json:"done"`
	// Skipped is set if the step could not be checked. It is not done then.
	Skipped string `json:"skipped,omitempty"`
	// isLast is true for the removal of the operator and what follows it, which the exit code
	// does not count.
	isLast bool
}

func newUninstall(a *app) *cobra.Command {
	var out outputFlag
	d, check := &doctor{app: a}, false
	cmd := &cobra.Command{
		Use:   "uninstall --check",
		Short: "Show what stands in the way of removing Plimsoll from the hub, in order",
		Long: `Show what stands in the way of removing Plimsoll from the hub, in the order in which to
remove it. Running workloads are not affected if the order is kept.

uninstall deletes nothing: each step names its command. The exit code is 1 if a step before
the removal of the operator remains or could not be checked.`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !check {
				return usagef("set --check: uninstall only shows the steps, it deletes nothing")
			}
			if err := out.check(); err != nil {
				return err
			}
			steps, err := d.removal(cmd.Context())
			if err != nil {
				return err
			}
			if err := out.print(a.Out, steps, func(w io.Writer) { writeSteps(w, steps) }); err != nil {
				return err
			}
			if slices.ContainsFunc(steps, func(s removalStep) bool { return !s.Done && !s.isLast }) {
				return errFindings
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "show the steps")
	cmd.Flags().StringVar(&d.kueue, "kueue-namespace", "kueue-system", "namespace of Kueue")
	out.add(cmd)
	return cmd
}

// removal returns the steps.
func (d *doctor) removal(ctx context.Context) ([]removalStep, error) {
	c, _, err := d.connect()
	if err != nil {
		return nil, err
	}
	d.client = c
	unread, err := d.hub.read(ctx, c)
	if err != nil {
		return nil, err
	}
	// A hub without Kueue has none of its objects.
	unread = slices.DeleteFunc(unread, func(f diagnosis) bool { return d.hub.withoutKueue && f.Subject == "Kueue" })
	if len(unread) > 0 {
		return nil, fmt.Errorf("%s: %s; the check needs all objects", unread[0].Subject, unread[0].Message)
	}
	dispatcher, err := d.dispatcherStep(ctx)
	if err != nil {
		return nil, err
	}
	steps := []removalStep{d.queueStep(), dispatcher, d.gateStep()}
	managed, err := d.managedStep(ctx)
	if err != nil {
		return nil, err
	}
	inactive, err := d.inactiveStep(ctx)
	if err != nil {
		return nil, err
	}
	secrets, err := d.secretStep(ctx)
	if err != nil {
		return nil, err
	}
	return append(steps, managed, d.placementStep(), d.policyStep(), d.capacityStep(), d.reclaimStep(), d.trialStep(), inactive,
		removalStep{Step: "operator", Command: "kubectl delete -k config/default; kubectl delete -k config/guard; or helm uninstall", isLast: true},
		secrets, d.accountStep(),
		removalStep{Step: "CRDs, with all sources that remain", Command: "kubectl delete -k config/crd", isLast: true}), nil
}

// step returns a step that is done if no object stands in the way.
func step(name, command string, objects []string) removalStep {
	return removalStep{Step: name, Objects: objects, Command: command, Done: len(objects) == 0}
}

// queueStep finds the queues with the check of a gate or for trials.
func (d *doctor) queueStep() removalStep {
	var queues []string
	gateOf, trials := d.hub.gateOf(), d.hub.trialChecks()
	for i := range d.hub.queues.Items {
		queue := &d.hub.queues.Items[i]
		for _, check := range checksOf(queue) {
			if _, ours := gateOf[check]; ours || slices.Contains(trials, check) {
				queues = append(queues, "ClusterQueue "+queue.Name+" has check "+check)
			}
		}
	}
	return step("checks off the queues", "kubectl edit clusterqueue NAME: remove the check from spec.admissionChecksStrategy", queues)
}

// dispatcherStep looks at the dispatcher in Kueue's configuration.
func (d *doctor) dispatcherStep(ctx context.Context) (removalStep, error) {
	s := step("Kueue's dispatcher back", "kubectl plimsoll connect --dispatcher=kueue.x-k8s.io/multikueue-dispatcher-all-at-once", nil)
	if d.hub.withoutKueue {
		return s, nil
	}
	name, err := d.readDispatcher(ctx)
	switch {
	case apierrors.IsNotFound(err):
		s.Skipped, s.Done = "ConfigMap "+d.kueue+"/kueue-manager-config does not exist: set --kueue-namespace, or look at the configuration of Kueue yourself", false
	case apierrors.IsForbidden(err):
		s.Skipped, s.Done = "your user may not read ConfigMap "+d.kueue+"/kueue-manager-config: look at it as another user", false
	case err != nil:
		return s, reading("ConfigMap "+d.kueue+"/kueue-manager-config", err)
	case name == v1alpha1.DispatcherName:
		s.Objects, s.Done = []string{"ConfigMap " + d.kueue + "/kueue-manager-config names " + name}, false
	}
	return s, nil
}

// gateStep finds the gates and their checks.
func (d *doctor) gateStep() removalStep {
	var objects []string
	for check, gate := range d.hub.gateOf() {
		objects = append(objects, "AdmissionCheck "+check+" of gate "+gate)
	}
	for _, check := range d.hub.trialChecks() {
		objects = append(objects, "AdmissionCheck "+check+" for trials")
	}
	for i := range d.hub.gates.Items {
		objects = append(objects, "PlacementGate "+d.hub.gates.Items[i].Name)
	}
	slices.Sort(objects)
	return step("gates and their checks", "kubectl delete admissioncheck NAME; kubectl delete placementgate NAME", objects)
}

// managedChecks returns the checks of MultiKueue with a configuration of a gate, sorted.
func (d *doctor) managedChecks() []string {
	var checks []string
	for check, name := range d.hub.configOf() {
		if config := d.hub.config(name); config != nil && config.Labels[v1alpha1.ManagedByLabel] != "" {
			checks = append(checks, check)
		}
	}
	slices.Sort(checks)
	return checks
}

// managedStep finds the MultiKueue objects of gates, and the workloads that use them.
func (d *doctor) managedStep(ctx context.Context) (removalStep, error) {
	var objects []string
	gates := map[string]bool{}
	for i := range d.hub.configs.Items {
		if c := &d.hub.configs.Items[i]; c.Labels[v1alpha1.ManagedByLabel] != "" {
			objects, gates[c.Labels[v1alpha1.ManagedByLabel]] = append(objects, "MultiKueueConfig "+c.Name), true
		}
	}
	for i := range d.hub.clusters.Items {
		if c := &d.hub.clusters.Items[i]; c.Labels[v1alpha1.ManagedByLabel] != "" {
			objects, gates[c.Labels[v1alpha1.ManagedByLabel]] = append(objects, "MultiKueueCluster "+c.Name), true
		}
	}
	commands := []string{}
	for _, check := range d.managedChecks() {
		objects = append(objects, "AdmissionCheck "+check+" refers to a MultiKueueConfig of a gate")
		commands = append(commands, "delete the queues with AdmissionCheck "+check+" and then the check, or point its spec.parameters to a MultiKueueConfig of your own")
	}
	for _, gate := range slices.Sorted(maps.Keys(gates)) {
		commands = append(commands, "kubectl plimsoll release "+gate)
	}
	s := step("MultiKueue objects of gates", strings.Join(commands, "; "), objects)
	if s.Done {
		s.Command = "kubectl plimsoll release GATE"
		return s, nil
	}
	s.Command += "; to go on with the objects without Plimsoll, remove the label " + v1alpha1.ManagedByLabel
	owned := slices.DeleteFunc(slices.Clone(d.hub.clusters.Items), func(c kueue.MultiKueueCluster) bool { return c.Labels[v1alpha1.ManagedByLabel] == "" })
	users, err := findWorkloadUsers(ctx, d.client, nil, owned)
	if err != nil {
		return s, err
	}
	if len(users) > 0 {
		s.Objects = append(s.Objects, countOf(len(users), "unfinished workload")+" through them, such as "+strings.TrimPrefix(users[0], "workload "))
	}
	return s, nil
}

// placementStep finds the Placements that read scores of policies.
func (d *doctor) placementStep() removalStep {
	published := map[string]bool{}
	for i := range d.hub.policies.Items {
		p := &d.hub.policies.Items[i]
		published[cmp.Or(p.Spec.Publish.Name, p.Name)] = true
	}
	var objects []string
	for i := range d.hub.placements.Items {
		p := &d.hub.placements.Items[i]
		for _, c := range p.Spec.PrioritizerPolicy.Configurations {
			if s := c.ScoreCoordinate; s != nil && s.AddOn != nil && published[s.AddOn.ResourceName] {
				objects = append(objects, fmt.Sprintf("Placement %s/%s reads the score %s/%s", p.Namespace, p.Name, s.AddOn.ResourceName, s.AddOn.ScoreName))
			}
		}
	}
	return step("Placements that read scores: OCM reads a missing score as 0", "kubectl -n NAMESPACE edit placement NAME: remove the prioritizer", objects)
}

// policyStep finds the policies.
func (d *doctor) policyStep() removalStep {
	var objects []string
	for i := range d.hub.policies.Items {
		objects = append(objects, "ScoringPolicy "+d.hub.policies.Items[i].Name)
	}
	return step("policies, and with them their scores", "kubectl delete scoringpolicy NAME", objects)
}

// capacityStep finds the CapacityPolicies. Their Cohorts stay.
func (d *doctor) capacityStep() removalStep {
	var objects []string
	for i := range d.hub.capacity.Items {
		p := &d.hub.capacity.Items[i]
		objects = append(objects, "CapacityPolicy "+p.Name+", whose Cohort "+p.Spec.CohortName+" keeps its last quota")
	}
	return step("capacity policies", "kubectl delete capacitypolicy NAME", objects)
}

// trialStep finds the TrialPolicies. The operator must run until it has deleted the copies.
func (d *doctor) trialStep() removalStep {
	var objects []string
	for i := range d.hub.trials.Items {
		p := &d.hub.trials.Items[i]
		object := "TrialPolicy " + p.Name
		if n := len(p.Status.Trials); n > 0 {
			object += ", which tries " + countOf(n, "job")
		}
		objects = append(objects, object)
	}
	return step("trial policies", "kubectl delete trialpolicy NAME; wait until kubectl get jobs -A -l "+v1alpha1.TrialOfLabel+" shows none", objects)
}

// reclaimStep finds the ReclaimPolicies.
func (d *doctor) reclaimStep() removalStep {
	var objects []string
	for i := range d.hub.reclaim.Items {
		objects = append(objects, "ReclaimPolicy "+d.hub.reclaim.Items[i].Name)
	}
	return step("reclaim policies", "kubectl delete reclaimpolicy NAME", objects)
}

// inactiveStep finds the workloads that the operator deactivated and has not activated again. It
// activates no workload that finished or is being deleted.
func (d *doctor) inactiveStep(ctx context.Context) (removalStep, error) {
	workloads, objects := &kueue.WorkloadList{}, []string{}
	if !d.hub.withoutKueue {
		if err := d.client.List(ctx, workloads); err != nil {
			return removalStep{}, reading("Workloads", err)
		}
	}
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		if kueuestate.IsActive(wl) || kueuestate.IsFinished(wl) || wl.DeletionTimestamp != nil {
			continue
		}
		if record, err := dispatch.Decode(wl.Annotations); err != nil || !record.SleepsUntil.IsZero() {
			objects = append(objects, "Workload "+wl.Namespace+"/"+wl.Name)
		}
	}
	slices.Sort(objects)
	return step("inactive workloads that only the operator activates again, after their pause",
		`if they stay: kubectl -n NAMESPACE patch workload NAME --type merge -p '{"spec":{"active":true}}'`, objects), nil
}

// secretStep finds the Secrets on the hub that connect wrote. Their content is not read.
func (d *doctor) secretStep(ctx context.Context) (removalStep, error) {
	selector := client.MatchingLabels{managedByLabel: connectManager}
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := d.client.List(ctx, secrets, client.InNamespace(d.kueue), selector)
	if err != nil && !apierrors.IsForbidden(err) {
		return removalStep{}, reading("Secrets in namespace "+d.kueue, err)
	}
	var objects []string
	for i := range secrets.Items {
		objects = append(objects, "Secret "+d.kueue+"/"+secrets.Items[i].Name)
	}
	slices.Sort(objects)
	s := step("Kueue's credentials of workers that connect wrote, once Kueue does not use them",
		fmt.Sprintf("kubectl -n %s delete secret -l %s=%s", d.kueue, managedByLabel, connectManager), objects)
	s.isLast = true
	if err != nil {
		s.Skipped, s.Done = "your user may not list Secrets in namespace "+d.kueue, false
	}
	return s, nil
}

// accountStep names the objects of worker.yaml, which the hub does not show.
func (d *doctor) accountStep() removalStep {
	return removalStep{
		Step:    "accounts on workers that connect created, once Kueue does not use them",
		Skipped: "the hub does not show them: check each worker that connect has connected. Their tokens do not expire",
		Command: fmt.Sprintf("kubectl --context WORKER -n %s delete serviceaccount,secret %s; kubectl --context WORKER delete clusterrole,clusterrolebinding %[2]s", d.kueue, workerAccount),
		isLast:  true,
	}
}

// writeSteps writes the steps as a list.
func writeSteps(w io.Writer, steps []removalStep) {
	for i, s := range steps {
		state := "to do"
		switch {
		case s.Skipped != "":
			state = "unknown"
		case s.Done:
			state = "done"
		}
		_, _ = fmt.Fprintf(w, "%d. %s: %s\n", i+1, s.Step, state)
		if s.Skipped != "" {
			_, _ = fmt.Fprintf(w, "   %s\n", s.Skipped)
		}
		for _, o := range s.Objects {
			_, _ = fmt.Fprintf(w, "   - %s\n", o)
		}
		if !s.Done || s.Skipped != "" {
			_, _ = fmt.Fprintf(w, "   → %s\n", s.Command)
		}
	}
}

// Package uninstall shows what stands in the way of a removal, and deletes the objects of deleted gates:
// the commands uninstall and release.
package uninstall

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
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
	"plimsoll.dev/plimsoll/operator/internal/format"
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

// uninstaller reads the hub once and finds what stands in the way of a removal.
type uninstaller struct {
	app    *command.App
	client client.Client
	kueue  string // namespace of Kueue
	hub    installation.Objects
}

// New returns the command uninstall.
func New(a *command.App) *cobra.Command {
	var out command.OutputFlag
	u, check := &uninstaller{app: a}, false
	cmd := &cobra.Command{
		Use:   "uninstall --check",
		Short: "Show what stands in the way of removing Plimsoll from the hub, in order",
		Long: `Show what stands in the way of removing Plimsoll from the hub, in the order in which to
remove it. Running workloads are not affected if the order is kept.

uninstall deletes nothing: each step names its command. The exit code is 1 if a step before
the removal of the operator remains or could not be checked.`,
		Args: command.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !check {
				return command.Usagef("set --check: uninstall only shows the steps, it deletes nothing")
			}
			if err := out.Check(); err != nil {
				return err
			}
			steps, err := u.removal(cmd.Context())
			if err != nil {
				return err
			}
			if err := out.Print(a.Out, "UninstallStepList", steps, func(w io.Writer) { writeSteps(w, steps) }); err != nil {
				return err
			}
			if slices.ContainsFunc(steps, func(s removalStep) bool { return !s.Done && !s.isLast }) {
				return command.ErrFindings
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "show the steps")
	cmd.Flags().StringVar(&u.kueue, "kueue-namespace", "kueue-system", "namespace of Kueue")
	out.Add(cmd)
	return cmd
}

// removal returns the steps.
func (u *uninstaller) removal(ctx context.Context) ([]removalStep, error) {
	c, _, err := hubclient.Connect(u.app)
	if err != nil {
		return nil, err
	}
	u.client = c
	unread, err := u.hub.Read(ctx, c)
	if err != nil {
		return nil, err
	}
	// A hub without Kueue has none of its objects.
	unread = slices.DeleteFunc(unread, func(f installation.Diagnosis) bool { return u.hub.WithoutKueue && f.Subject == "Kueue" })
	if len(unread) > 0 {
		return nil, fmt.Errorf("%s: %s; the check needs all objects", unread[0].Subject, unread[0].Message)
	}
	dispatcher, err := u.dispatcherStep(ctx)
	if err != nil {
		return nil, err
	}
	steps := []removalStep{u.queueStep(), dispatcher, u.gateStep()}
	managed, err := u.managedStep(ctx)
	if err != nil {
		return nil, err
	}
	inactive, err := u.inactiveStep(ctx)
	if err != nil {
		return nil, err
	}
	secrets, err := u.secretStep(ctx)
	if err != nil {
		return nil, err
	}
	return append(steps, managed, u.placementStep(), u.policyStep(), u.capacityStep(), u.reclaimStep(), u.trialStep(), inactive,
		removalStep{Step: "operator", Command: "kubectl delete -k config/default; kubectl delete -k config/guard; or helm uninstall", isLast: true},
		secrets, u.accountStep(),
		removalStep{Step: "CRDs, with all sources that remain", Command: "kubectl delete -k config/crd", isLast: true}), nil
}

// step returns a step that is done if no object stands in the way.
func step(name, command string, objects []string) removalStep {
	return removalStep{Step: name, Objects: objects, Command: command, Done: len(objects) == 0}
}

// queueStep finds the queues with the check of a gate or for trials.
func (u *uninstaller) queueStep() removalStep {
	var queues []string
	gateOf, trials := u.hub.GateOf(), u.hub.TrialChecks()
	for i := range u.hub.Queues.Items {
		queue := &u.hub.Queues.Items[i]
		for _, check := range kueuestate.ChecksOfQueue(queue) {
			if _, ours := gateOf[check]; ours || slices.Contains(trials, check) {
				queues = append(queues, "ClusterQueue "+queue.Name+" has check "+check)
			}
		}
	}
	return step("checks off the queues", "kubectl edit clusterqueue NAME: remove the check from spec.admissionChecksStrategy", queues)
}

// dispatcherStep looks at the dispatcher in Kueue's configuration.
func (u *uninstaller) dispatcherStep(ctx context.Context) (removalStep, error) {
	s := step("Kueue's dispatcher back", "kubectl plimsoll connect --dispatcher=kueue.x-k8s.io/multikueue-dispatcher-all-at-once", nil)
	if u.hub.WithoutKueue {
		return s, nil
	}
	name, err := installation.ReadDispatcher(ctx, u.client, u.kueue)
	switch {
	case apierrors.IsNotFound(err):
		s.Skipped, s.Done = "ConfigMap "+u.kueue+"/kueue-manager-config does not exist: set --kueue-namespace, or look at the configuration of Kueue yourself", false
	case apierrors.IsForbidden(err):
		s.Skipped, s.Done = "your user may not read ConfigMap "+u.kueue+"/kueue-manager-config: look at it as another user", false
	case err != nil:
		return s, hubclient.Reading("ConfigMap "+u.kueue+"/kueue-manager-config", err)
	case name == v1alpha1.DispatcherName:
		s.Objects, s.Done = []string{"ConfigMap " + u.kueue + "/kueue-manager-config names " + name}, false
	}
	return s, nil
}

// gateStep finds the gates and their checks.
func (u *uninstaller) gateStep() removalStep {
	var objects []string
	for check, gate := range u.hub.GateOf() {
		objects = append(objects, "AdmissionCheck "+check+" of gate "+gate)
	}
	for _, check := range u.hub.TrialChecks() {
		objects = append(objects, "AdmissionCheck "+check+" for trials")
	}
	for i := range u.hub.Gates.Items {
		objects = append(objects, "PlacementGate "+u.hub.Gates.Items[i].Name)
	}
	slices.Sort(objects)
	return step("gates and their checks", "kubectl delete admissioncheck NAME; kubectl delete placementgate NAME", objects)
}

// managedChecks returns the checks of MultiKueue with a configuration of a gate, sorted.
func (u *uninstaller) managedChecks() []string {
	var checks []string
	for check, name := range u.hub.ConfigOf() {
		if config := u.hub.Config(name); config != nil && config.Labels[v1alpha1.ManagedByLabel] != "" {
			checks = append(checks, check)
		}
	}
	slices.Sort(checks)
	return checks
}

// managedStep finds the MultiKueue objects of gates, and the workloads that use them.
func (u *uninstaller) managedStep(ctx context.Context) (removalStep, error) {
	var objects []string
	gates := map[string]bool{}
	for i := range u.hub.Configs.Items {
		if c := &u.hub.Configs.Items[i]; c.Labels[v1alpha1.ManagedByLabel] != "" {
			objects, gates[c.Labels[v1alpha1.ManagedByLabel]] = append(objects, "MultiKueueConfig "+c.Name), true
		}
	}
	for i := range u.hub.Clusters.Items {
		if c := &u.hub.Clusters.Items[i]; c.Labels[v1alpha1.ManagedByLabel] != "" {
			objects, gates[c.Labels[v1alpha1.ManagedByLabel]] = append(objects, "MultiKueueCluster "+c.Name), true
		}
	}
	commands := []string{}
	for _, check := range u.managedChecks() {
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
	owned := slices.DeleteFunc(slices.Clone(u.hub.Clusters.Items), func(c kueue.MultiKueueCluster) bool { return c.Labels[v1alpha1.ManagedByLabel] == "" })
	users, err := findWorkloadUsers(ctx, u.client, nil, owned)
	if err != nil {
		return s, err
	}
	if len(users) > 0 {
		s.Objects = append(s.Objects, format.Plural(len(users), "unfinished workload")+" through them, such as "+strings.TrimPrefix(users[0], "workload "))
	}
	return s, nil
}

// placementStep finds the Placements that read scores of policies.
func (u *uninstaller) placementStep() removalStep {
	published := map[string]bool{}
	for i := range u.hub.Policies.Items {
		p := &u.hub.Policies.Items[i]
		published[cmp.Or(p.Spec.Publish.Name, p.Name)] = true
	}
	var objects []string
	for i := range u.hub.Placements.Items {
		p := &u.hub.Placements.Items[i]
		for _, c := range p.Spec.PrioritizerPolicy.Configurations {
			if s := c.ScoreCoordinate; s != nil && s.AddOn != nil && published[s.AddOn.ResourceName] {
				objects = append(objects, fmt.Sprintf("Placement %s/%s reads the score %s/%s", p.Namespace, p.Name, s.AddOn.ResourceName, s.AddOn.ScoreName))
			}
		}
	}
	return step("Placements that read scores: OCM reads a missing score as 0", "kubectl -n NAMESPACE edit placement NAME: remove the prioritizer", objects)
}

// policyStep finds the policies.
func (u *uninstaller) policyStep() removalStep {
	var objects []string
	for i := range u.hub.Policies.Items {
		objects = append(objects, "ScoringPolicy "+u.hub.Policies.Items[i].Name)
	}
	return step("policies, and with them their scores", "kubectl delete scoringpolicy NAME", objects)
}

// capacityStep finds the CapacityPolicies. Their Cohorts stay.
func (u *uninstaller) capacityStep() removalStep {
	var objects []string
	for i := range u.hub.Capacity.Items {
		p := &u.hub.Capacity.Items[i]
		objects = append(objects, "CapacityPolicy "+p.Name+", whose Cohort "+p.Spec.CohortName+" keeps its last quota")
	}
	return step("capacity policies", "kubectl delete capacitypolicy NAME", objects)
}

// trialStep finds the TrialPolicies. The operator must run until it has deleted the copies.
func (u *uninstaller) trialStep() removalStep {
	var objects []string
	for i := range u.hub.Trials.Items {
		p := &u.hub.Trials.Items[i]
		object := "TrialPolicy " + p.Name
		if n := len(p.Status.Trials); n > 0 {
			object += ", which tries " + format.Plural(n, "job")
		}
		objects = append(objects, object)
	}
	return step("trial policies", "kubectl delete trialpolicy NAME; wait until kubectl get jobs -A -l "+v1alpha1.TrialOfLabel+" shows none", objects)
}

// reclaimStep finds the ReclaimPolicies.
func (u *uninstaller) reclaimStep() removalStep {
	var objects []string
	for i := range u.hub.Reclaim.Items {
		objects = append(objects, "ReclaimPolicy "+u.hub.Reclaim.Items[i].Name)
	}
	return step("reclaim policies", "kubectl delete reclaimpolicy NAME", objects)
}

// inactiveStep finds the workloads that the operator deactivated and has not activated again. It
// activates no workload that finished or is being deleted.
func (u *uninstaller) inactiveStep(ctx context.Context) (removalStep, error) {
	workloads, objects := &kueue.WorkloadList{}, []string{}
	if !u.hub.WithoutKueue {
		if err := u.client.List(ctx, workloads); err != nil {
			return removalStep{}, hubclient.Reading("Workloads", err)
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
func (u *uninstaller) secretStep(ctx context.Context) (removalStep, error) {
	selector := client.MatchingLabels{installation.ManagedByLabel: installation.FieldManager}
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := u.client.List(ctx, secrets, client.InNamespace(u.kueue), selector)
	if err != nil && !apierrors.IsForbidden(err) {
		return removalStep{}, hubclient.Reading("Secrets in namespace "+u.kueue, err)
	}
	var objects []string
	for i := range secrets.Items {
		objects = append(objects, "Secret "+u.kueue+"/"+secrets.Items[i].Name)
	}
	slices.Sort(objects)
	s := step("Kueue's credentials of workers that connect wrote, once Kueue does not use them",
		fmt.Sprintf("kubectl -n %s delete secret -l %s=%s", u.kueue, installation.ManagedByLabel, installation.FieldManager), objects)
	s.isLast = true
	if err != nil {
		s.Skipped, s.Done = "your user may not list Secrets in namespace "+u.kueue, false
	}
	return s, nil
}

// accountStep names the objects of worker.yaml, which the hub does not show.
func (u *uninstaller) accountStep() removalStep {
	return removalStep{
		Step:    "accounts on workers that connect created, once Kueue does not use them",
		Skipped: "the hub does not show them: check each worker that connect has connected. Their tokens do not expire",
		Command: fmt.Sprintf("kubectl --context WORKER -n %s delete serviceaccount,secret %s; kubectl --context WORKER delete clusterrole,clusterrolebinding %[2]s", u.kueue, installation.WorkerAccount),
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

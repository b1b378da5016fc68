// Package doctor checks the installation on the hub: the command doctor.
package doctor

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// doctor reads the hub once and checks it.
type doctor struct {
	app       *command.App
	client    client.Client
	namespace string // of the operator
	kueue     string // namespace of Kueue
	hub       installation.Objects
	metrics   prometheus.Flags
	nominates bool // the operator is meant to be Kueue's dispatcher
}

// New returns the command doctor.
func New(a *command.App) *cobra.Command {
	var out command.OutputFlag
	d := &doctor{app: a}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the installation on the hub and say how to repair each fault",
		Long: `Check the installation on the hub and say how to repair each fault: versions, the
operator, Kueue's dispatcher, queues and admission checks, connections to workers, what Open
Cluster Management installs there, and the conditions of sources, policies and gates. If doctor
finds the metrics, it also checks for each cluster whether the series exist that policies and gates
need, and warns of workers whose Kueue exports no quota.

doctor reads objects and writes nothing. A check is skipped if your user may not read what
it needs. The exit code is 1 if there is a fault; warnings do not count.

` + prometheus.Help,
		Example: "  kubectl plimsoll doctor\n  kubectl plimsoll doctor",
		Args:    command.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.Check(), d.metrics.Check()); err != nil {
				return err
			}
			diagnoses, err := d.run(cmd.Context())
			if err != nil {
				return err
			}
			if err := out.Print(a.Out, "DiagnosisList", diagnoses, func(w io.Writer) { writeDiagnoses(w, a.Paint, diagnoses) }); err != nil {
				return err
			}
			if slices.ContainsFunc(diagnoses, func(f installation.Diagnosis) bool { return f.Result == installation.ResultFault }) {
				return command.ErrFindings
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&d.namespace, "operator-namespace", "plimsoll-system", "namespace of the operator")
	cmd.Flags().StringVar(&d.kueue, "kueue-namespace", "kueue-system", "namespace of Kueue")
	d.metrics.AddHubSource(cmd.Flags())
	d.metrics.Add(cmd)
	out.Add(cmd)
	return cmd
}

// run returns the diagnoses in the order in which faults should be repaired: a fault can be
// the cause of those below it.
func (d *doctor) run(ctx context.Context) ([]installation.Diagnosis, error) {
	c, _, err := hubclient.Connect(d.app)
	if err != nil {
		return nil, err
	}
	d.client = c
	skipped, err := d.hub.Read(ctx, c)
	if err != nil {
		return nil, err
	}
	diagnoses := skipped
	for _, c := range []struct {
		check func(context.Context) ([]installation.Diagnosis, error)
		needs []string // kinds without which the check would report faults that are none
	}{
		{d.checkOperator, nil},
		{d.checkKueue, nil},
		{d.checkConditions, nil},
		{d.checkQueues, []string{"ClusterQueues", "AdmissionChecks", "PlacementGates"}},
		{d.checkJobs, []string{"ClusterQueues", "AdmissionChecks"}},
		{d.checkWorkers, []string{"MultiKueueClusters"}},
		{d.checkMembers, nil},
		{d.checkInstalled, nil},
		{d.checkSeries, nil},
	} {
		if slices.ContainsFunc(c.needs, func(kind string) bool { return slices.Contains(d.hub.Unread, kind) }) {
			continue
		}
		found, err := c.check(ctx)
		if err != nil {
			return nil, err
		}
		diagnoses = append(diagnoses, found...)
	}
	return diagnoses, nil
}

// writeDiagnoses writes a table of the diagnoses, and the fix of each fault below it.
func writeDiagnoses(w io.Writer, paint format.Painter, diagnoses []installation.Diagnosis) {
	format.Row(w, "RESULT", "SUBJECT", "MESSAGE")
	for _, f := range diagnoses {
		result := paint.Warning(f.Result)
		switch f.Result {
		case installation.ResultOK:
			result = paint.Good(f.Result)
		case installation.ResultFault:
			result = paint.Bad(f.Result)
		}
		format.Row(w, result, f.Subject, f.Message)
		if f.Fix != "" {
			format.Row(w, "", "", "→ "+f.Fix)
		}
	}
}

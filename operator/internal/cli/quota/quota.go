// Package quota shows the quotas of CapacityPolicies: the command quota.
package quota

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/policies/capacity"
)

// quotaRow is one quota of a CapacityPolicy.
type quotaRow struct {
	Policy   string `json:"policy"`
	Cohort   string `json:"cohort"`
	Mode     string `json:"mode"`
	Flavor   string `json:"flavor"`
	Resource string `json:"resource"`
	// Current is the nominal quota of the Cohort; nil = the Cohort does not have one.
	Current *int64 `json:"current,omitempty"`
	// Wanted is the nominal quota that the policy computes; nil = not measured yet.
	Wanted   *int64 `json:"wanted,omitempty"`
	Measured int64  `json:"measured"`
	Reserved int64  `json:"reserved"`
	// Pending is the next value of Wanted, as text; "" = no change is pending.
	Pending  string                     `json:"pending,omitempty"`
	Clusters []v1alpha1.ClusterCapacity `json:"clusters,omitempty"`
}

func (r *quotaRow) differs() bool {
	return r.Wanted != nil && (r.Current == nil || *r.Current != *r.Wanted)
}

// New returns the command quota.
func New(a *command.App) *cobra.Command {
	var out command.OutputFlag
	diff := false
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Show the quotas that CapacityPolicies measure, beside those of Kueue",
		Long: `Show the quotas that CapacityPolicies measure, beside those of Kueue.

CURRENT is the nominal quota of the Cohort, WANTED the one that the policy computes: the
measured devices, less the quotas of the Cohort's own queues. PENDING is the next value of
WANTED. -o wide also lists the devices of each cluster.

With --diff, only quotas whose Cohort differs are shown, and the exit code is 1 if there are
any. This is what mode Enforce would change.`,
		Example: "  kubectl plimsoll quota -o wide\n  kubectl plimsoll quota --diff",
		Args:    command.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			rows, err := readQuotas(cmd.Context(), a)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				_, _ = fmt.Fprintln(a.ErrOut, "No CapacityPolicy has completed a round. Check: kubectl get capacitypolicies")
			}
			if diff {
				rows = slices.DeleteFunc(rows, func(r quotaRow) bool { return !r.differs() })
			}
			if err := out.Print(a.Out, "QuotaList", rows, func(w io.Writer) { writeQuotas(w, rows, out.IsWide()) }); err != nil {
				return err
			}
			if diff && len(rows) > 0 {
				return command.ErrFindings
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&diff, "diff", false, "show only quotas whose Cohort differs, and exit with 1 if there are any")
	out.Add(cmd)
	return cmd
}

// readQuotas returns the quotas of all policies by policy, in the order of their specs.
func readQuotas(ctx context.Context, a *command.App) ([]quotaRow, error) {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return nil, err
	}
	policies, cohorts := &v1alpha1.CapacityPolicyList{}, &kueue.CohortList{}
	if err := c.List(ctx, policies); err != nil {
		return nil, hubclient.Reading("CapacityPolicies", err)
	}
	if err := c.List(ctx, cohorts); err != nil {
		return nil, hubclient.Reading("Cohorts", err)
	}
	rows := []quotaRow{}
	for i := range policies.Items {
		p := &policies.Items[i]
		for j := range p.Status.Quotas {
			rows = append(rows, newQuotaRow(p, &p.Status.Quotas[j], cohorts.Items))
		}
	}
	return rows, nil
}

func newQuotaRow(p *v1alpha1.CapacityPolicy, q *v1alpha1.QuotaStatus, cohorts []kueue.Cohort) quotaRow {
	row := quotaRow{
		Policy: p.Name, Cohort: p.Spec.CohortName, Mode: string(p.Spec.Mode), Flavor: q.Flavor, Resource: q.Resource,
		Measured: q.Measured, Reserved: q.Reserved, Clusters: q.Clusters,
	}
	if q.Quota != nil {
		row.Wanted = new(capacity.CohortQuota(q))
	}
	for i := range cohorts {
		if cohorts[i].Name == p.Spec.CohortName {
			row.Current = cohortQuota(&cohorts[i], q.Flavor, q.Resource)
		}
	}
	switch {
	case q.Raise != nil:
		row.Pending = fmt.Sprintf("raise to %d", max(q.Raise.To-q.QueueQuota, 0))
	case q.Lower != nil:
		row.Pending = fmt.Sprintf("lower to %d since %s", max(q.Lower.To-q.QueueQuota, 0), q.Lower.Since.UTC().Format("15:04:05Z"))
	}
	return row
}

// cohortQuota returns a nominal quota of a Cohort, and nil if it has none.
func cohortQuota(c *kueue.Cohort, flavor, resource string) *int64 {
	for _, group := range c.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			for i := range f.Resources {
				if string(f.Name) == flavor && f.Resources[i].Name == corev1.ResourceName(resource) {
					return new(f.Resources[i].NominalQuota.Value())
				}
			}
		}
	}
	return nil
}

func writeQuotas(w io.Writer, rows []quotaRow, wide bool) {
	if len(rows) == 0 {
		return
	}
	format.Row(w, "POLICY", "MODE", "COHORT", "FLAVOR", "RESOURCE", "CURRENT", "WANTED", "MEASURED", "RESERVED", "PENDING")
	for _, r := range rows {
		format.Row(w, r.Policy, r.Mode, r.Cohort, r.Flavor, r.Resource, formatDevices(r.Current), formatDevices(r.Wanted), fmt.Sprint(r.Measured), fmt.Sprint(r.Reserved), r.Pending)
		if !wide {
			continue
		}
		for _, c := range r.Clusters {
			state := string(c.State)
			if c.Reason != "" {
				state += ": " + c.Reason
			}
			format.Row(w, "", "", "", "", c.Name, "", "", fmt.Sprint(c.Devices), "", state)
		}
	}
}

func formatDevices(n *int64) string {
	if n == nil {
		return "none"
	}
	return fmt.Sprint(*n)
}

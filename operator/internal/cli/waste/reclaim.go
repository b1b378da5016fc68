package waste

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// reclaimRow is a workload that a ReclaimPolicy returned to its queue, would have returned, or
// found idle in its last round.
type reclaimRow struct {
	Policy   string `json:"policy"`
	Mode     string `json:"mode"`
	Workload string `json:"workload"`
	Cluster  string `json:"cluster"`
	Devices  int64  `json:"devices"`
	// IdleSeconds is for how long all devices had been idle.
	IdleSeconds int64 `json:"idleSeconds"`
	// State is that of the last round, or for the past Reclaimed, WouldReclaim, Moved or WouldMove.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Time of a row of the past.
	Time *time.Time `json:"time,omitempty"`
}

// showReclaims prints the state of all ReclaimPolicies.
func showReclaims(ctx context.Context, a *command.App, out *command.OutputFlag) error {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return err
	}
	policies := &v1alpha1.ReclaimPolicyList{}
	if err := c.List(ctx, policies); err != nil {
		return hubclient.Reading("ReclaimPolicies", err)
	}
	rows := []reclaimRow{}
	for i := range policies.Items {
		rows = append(rows, reclaimRows(&policies.Items[i])...)
	}
	if len(rows) == 0 {
		_, _ = fmt.Fprintln(a.ErrOut, "No ReclaimPolicy has found an idle workload. Check: kubectl get reclaimpolicies")
	}
	return out.Print(a.Out, "ReclaimList", rows, func(w io.Writer) { writeReclaims(w, rows, a.Now()) })
}

// reclaimRows returns the idle workloads of the last round, then the past, the latest first.
func reclaimRows(p *v1alpha1.ReclaimPolicy) []reclaimRow {
	var rows []reclaimRow
	for _, wl := range p.Status.IdleWorkloads {
		if wl.State == v1alpha1.IdleSelected {
			continue // the history has it
		}
		rows = append(rows, reclaimRow{Policy: p.Name, Mode: string(p.Spec.Mode), Workload: wl.Namespace + "/" + wl.Name, Cluster: wl.Cluster,
			Devices: wl.Devices, IdleSeconds: wl.IdleSeconds, State: string(wl.State), Reason: wl.Reason})
	}
	for i := len(p.Status.History) - 1; i >= 0; i-- {
		r := &p.Status.History[i]
		row := reclaimRow{Policy: p.Name, Mode: string(r.Mode), Workload: r.Namespace + "/" + r.Name, Cluster: r.Cluster,
			Devices: r.Devices, IdleSeconds: r.IdleSeconds, State: "Reclaimed", Time: &r.Time.Time}
		switch isShadow := r.Mode == v1alpha1.ModeShadow; {
		case r.Move != nil && isShadow:
			row.State, row.Reason = "WouldMove", "to "+r.Move.To+" for "+r.Move.For
		case r.Move != nil:
			row.State, row.Reason = "Moved", "to "+r.Move.To+" for "+r.Move.For
		case isShadow:
			row.State = "WouldReclaim"
		}
		rows = append(rows, row)
	}
	return rows
}

func writeReclaims(w io.Writer, rows []reclaimRow, now time.Time) {
	if len(rows) == 0 {
		return
	}
	format.Row(w, "POLICY", "MODE", "WORKLOAD", "CLUSTER", "DEVICES", "IDLE", "STATE", "REASON")
	for _, r := range rows {
		reason := r.Reason
		if r.Time != nil {
			reason = strings.TrimSpace(format.Age(now, *r.Time) + " ago " + r.Reason)
		}
		format.Row(w, r.Policy, r.Mode, r.Workload, r.Cluster, fmt.Sprint(r.Devices), (time.Duration(r.IdleSeconds) * time.Second).String(), r.State, reason)
	}
}

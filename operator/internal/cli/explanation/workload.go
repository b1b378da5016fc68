// Package explanation explains scores and placement decisions, from the operator or from the objects on the hub, for the
// commands explain and ui.
package explanation

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

// Workload explains a workload. Its details come from the operator, or else from the objects on the hub. The error is one
// of reaching the operator, if the flags have its address.
func Workload(ctx context.Context, a *command.App, hub client.Reader, operator *OperatorFlags, wl *kueue.Workload) (*explain.Report, error) {
	report := &explain.Report{Owner: hubclient.OwnerOf(wl), Queue: string(wl.Spec.QueueName), From: explain.FromObjects}
	h := &hubExplainer{client: hub, report: report}
	h.readChecks(ctx, wl)
	err := operator.get(ctx, a, "/explain/workload/"+wl.Namespace+"/"+wl.Name, &report.Explanation)
	switch {
	case err != nil && operator.isFatal(err):
		return nil, err
	case err != nil:
		h.explain(ctx, wl, a.Now(), err.Error())
	case report.Follower:
		// Only the leader has decisions. A follower says so in Problem.
		reason := report.Problem
		report.Problem = ""
		h.explain(ctx, wl, a.Now(), reason)
	default:
		report.From = explain.FromOperator
	}
	report.Waiting = isWaiting(wl, report.Cluster)
	return report, nil
}

// State is how far a workload is, from the objects on the hub alone.
type State struct {
	gate.Wait
	// Gate that decides; nil = none, or it can't be read.
	Gate *v1alpha1.PlacementGate
	// Checks of the workload by who decides them. They are incomplete if ChecksUnknown.
	Checks        kueuestate.Checks
	ChecksUnknown bool
	Record        dispatch.Record
	// Cluster that has the workload; empty = none.
	Cluster string
	// Waiting is false once the workload is placed, admitted or finished.
	Waiting bool
	// Problem of the gate or the record; empty = none.
	Problem string
	// NotShown lists information that is missing, with the reason.
	NotShown []string
}

// StateOf returns how far a workload is.
func StateOf(ctx context.Context, hub client.Reader, wl *kueue.Workload, now time.Time) State {
	h := &hubExplainer{client: hub, report: &explain.Report{}}
	h.readChecks(ctx, wl)
	h.readState(ctx, wl)
	g := h.readGate(ctx)
	r := h.report
	return State{Wait: h.stand.Wait(now), Gate: g, Checks: h.checks, ChecksUnknown: h.stand.ChecksUnknown, Record: r.Dispatch, Cluster: r.Cluster,
		Waiting: isWaiting(wl, r.Cluster), Problem: r.Problem, NotShown: r.NotShown}
}

// isWaiting reports whether the workload needs a further step. cluster is the
// placement of the workload, or "".
func isWaiting(wl *kueue.Workload, cluster string) bool {
	switch {
	case kueuestate.IsFinished(wl):
		return false
	case !wl.DeletionTimestamp.IsZero():
		return true
	case cluster != "":
		return false
	}
	return !kueuestate.IsActive(wl) || !kueuestate.HoldsQuota(wl) || kueuestate.IsEvicted(wl) || !kueuestate.IsAdmitted(wl)
}

package workload

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// Inputs returns what a decision of the gate about a workload rests on at this moment, for a workload
// that waits or runs. problem states why the gate decides nothing; empty = none.
func (r *Reconciler) Inputs(ctx context.Context, key client.ObjectKey) (in *gate.Inputs, problem string, err error) {
	if err := r.rebuildOnce(ctx); err != nil {
		return nil, "", fmt.Errorf("rebuild the ledger: %w", err)
	}
	s, err := r.observe(ctx, r.engine.Begin(key))
	if err != nil {
		return nil, "", err
	}
	switch {
	case s.Workload == nil:
		return nil, "it does not exist", nil
	case !kueuestate.HoldsQuota(s.Workload):
		return nil, "it holds no quota", nil
	case len(s.Checks.Own) != 1:
		return nil, "it does not have one check of a gate", nil
	case !s.Gate.Known:
		return nil, "PlacementGate " + s.Gate.Name + " is not known", nil
	case s.Gate.Problem != "":
		return nil, "PlacementGate " + s.Gate.Name + " is not ready: " + s.Gate.Problem, nil
	}
	candidates, fleet := r.cache.Candidates(ctx, s.Gate.Gate, s.JobFacts())
	return r.engine.Measured(s, r.keyOf(s), candidates, fleet).Inputs(s.Record.Attempt + 1), "", nil
}

// Holds returns the clusters that gates hold for waiting workloads.
func (r *Reconciler) Holds() []ledger.Hold { return r.engine.Ledger.View().Holds() }

// Doubted reports whether gates doubt a cluster, for each cluster that has admitted workloads.
func (r *Reconciler) Doubted() map[string]bool { return r.engine.Ledger.View().Doubted(r.now()) }

// Remembered describes what this process still remembers of workloads; empty = nothing.
func (r *Reconciler) Remembered() []string { return r.engine.Remembered() }

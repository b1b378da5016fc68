package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
)

// Observe implements engine.Edge.
func (r *Reconciler) Observe(ctx context.Context, s *lifecycle.Situation) (*lifecycle.Situation, error) {
	s, err := r.observe(ctx, s)
	if err != nil {
		return nil, err
	}
	return r.readUnknownWrite(ctx, s)
}

// observe reads the workload and every object that its next step depends on.
func (r *Reconciler) observe(ctx context.Context, s *lifecycle.Situation) (*lifecycle.Situation, error) {
	wl := &kueue.Workload{}
	if err := r.client.Get(ctx, s.Key, wl); apierrors.IsNotFound(err) {
		return s, nil
	} else if err != nil {
		return nil, err
	}
	r.engine.Recall(s, wl)
	if s.IsDecidedFirst() {
		return s, r.observeWithoutQuota(ctx, s)
	}
	if held := s.WithQuota(); held != nil {
		s.Workload = held
		return s, r.observeWorkload(ctx, s)
	}
	return s, r.observeLostQuota(ctx, s)
}

func (r *Reconciler) observeWorkload(ctx context.Context, s *lifecycle.Situation) error {
	if err := r.observeChecks(ctx, s); err != nil {
		return err
	}
	if err := r.observeComponents(ctx, s); err != nil {
		return err
	}
	if err := r.observeReplacedSlice(ctx, s); err != nil {
		return err
	}
	if err := r.observeFlavors(ctx, s); err != nil {
		return err
	}
	if s.Dispatch() == lifecycle.Local {
		s.Request.NodeRequirements = lifecycle.RequirementsOnNodes(s.Workload, s.Checks.Own, s.Request.Flavors)
	} else if err := r.observeWorkers(ctx, s); err != nil {
		return err
	}
	if len(s.Checks.Own) > 0 {
		if err := r.observeGate(ctx, s); err != nil {
			return err
		}
	}
	if err := r.observeProfile(ctx, s); err != nil {
		return err
	}
	if err := r.observeClaimTemplates(ctx, s); err != nil {
		return err
	}
	s.Request.Facts = s.FactsUnder(s.Workload, &s.Gate.Spec)
	s.Gate.TotalWaiting = r.engine.Registry.TotalWaiting()
	s.Gate.Conflict = r.engine.Registry.Conflict(s.Gate.Name, s.Now)
	return nil
}

func (r *Reconciler) observeChecks(ctx context.Context, s *lifecycle.Situation) error {
	find := func(name string) (*kueue.AdmissionCheck, error) { return hubstate.AdmissionCheck(ctx, r.client, name) }
	checks, err := kueuestate.ChecksOf(s.Workload, find)
	s.Checks, s.Gate.Name = checks, checks.Gate()
	return err
}

// observeFlavors reads the flavors that Kueue assigned. A flavor that does not exist has no
// labels; any other error ends the reconciliation, because a missing label would widen the
// workload to every device model.
func (r *Reconciler) observeFlavors(ctx context.Context, s *lifecycle.Situation) error {
	s.Request.Flavors = map[string]kueue.ResourceFlavorSpec{}
	if s.Workload.Status.Admission == nil {
		return nil
	}
	for _, name := range s.Job.AssignedFlavors(s.Workload) {
		flavor := &kueue.ResourceFlavor{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, flavor); client.IgnoreNotFound(err) != nil {
			return err
		}
		s.Request.Flavors[name] = flavor.Spec
	}
	return r.observeQueue(ctx, s)
}

func (r *Reconciler) observeWorkers(ctx context.Context, s *lifecycle.Situation) error {
	s.MultiKueue.ConnectedSince, s.MultiKueue.Disconnected = map[string]time.Time{}, map[string]string{}
	config := &kueue.MultiKueueConfig{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: s.Checks.Config}, config); err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, name := range config.Spec.Clusters {
		cluster := &kueue.MultiKueueCluster{}
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, cluster)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err != nil {
			cluster = nil
		}
		why := kueuestate.DisconnectedReason(config, name, cluster)
		if why == "" && !kueuestate.AllowsCluster(s.Workload, name) {
			why = lifecycle.NotPermitted
		}
		if why != "" {
			s.MultiKueue.Disconnected[name] = why
			continue
		}
		s.MultiKueue.Connected = append(s.MultiKueue.Connected, name)
		active := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive)
		s.MultiKueue.ConnectedSince[name] = active.LastTransitionTime.Time
	}
	return nil
}

// observeGate takes the gate from the registry. If the registry does not have it, the API
// server's spec at least provides the widening times and the model's labels.
func (r *Reconciler) observeGate(ctx context.Context, s *lifecycle.Situation) error {
	name := s.Gate.Name
	s.Gate.Gate, s.Gate.Known = r.engine.Registry.Get(name)
	s.Gate.Exists = s.Gate.Known
	if !s.Gate.Known {
		pg := &v1alpha1.PlacementGate{}
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, pg)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		s.Gate.Exists, s.Gate.Gate = err == nil, gatestate.Gate{Name: name, Spec: pg.Spec, UID: pg.UID, Generation: pg.Generation}
		return nil
	}
	if mk := s.Gate.Spec.MultiKueue; s.Gate.Problem == "" && mk != nil && s.Dispatch() != lifecycle.Local && mk.ConfigName != s.Checks.Config {
		s.Gate.Problem = fmt.Sprintf("admission check %s uses MultiKueueConfig %s but the gate maintains %s; name the same in both", s.Checks.MultiKueue, s.Checks.Config, mk.ConfigName)
	}
	return nil
}

// observeProfile reads the JobProfile of the workload, if a query of the gate reads it. Runs of the
// components of a job have no profile.
func (r *Reconciler) observeProfile(ctx context.Context, s *lifecycle.Situation) error {
	if !shape.UsesProfiles(&s.Gate.Spec) || kueuestate.IsComponent(s.Workload) {
		return nil
	}
	p := &v1alpha1.JobProfile{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: s.Key.Namespace, Name: profile.RecordedName(s.Workload)}, p)
	if err == nil {
		s.Request.Profile = &p.Status
	}
	return client.IgnoreNotFound(err)
}

// Measure implements engine.Edge: it adds query results, the ledger's view and the pending workloads. Phases
// without a decision need none of it.
func (r *Reconciler) Measure(ctx context.Context, s *lifecycle.Situation) (*lifecycle.Situation, error) {
	switch {
	case s.Decides():
		clusters, fleet := r.cache.Candidates(ctx, s.Gate.Gate, s.JobFacts())
		s = r.engine.Measured(s, r.keyOf(s), clusters, fleet)
		s.Room.HoldingOn = r.holdingOn(ctx, s)
	case lifecycle.PhaseOf(s) == lifecycle.PhaseGateUnknown && s.Gate.Exists:
		s.Room.Key = r.keyOf(s)
	}
	return s, r.measureOthers(ctx, s)
}

func (r *Reconciler) keyOf(s *lifecycle.Situation) gatestate.QueryKey {
	return r.cache.KeyOf(s.Gate.Gate, s.JobFacts())
}

// measureOthers adds whether other workloads wait for the quota of a workload that may yield.
func (r *Reconciler) measureOthers(ctx context.Context, s *lifecycle.Situation) (err error) {
	if (s.Decides() || lifecycle.PhaseOf(s) == lifecycle.PhaseAwaitingPrimary) && s.MayYield() {
		s.Room.OthersPending, err = r.pending.hasOther(ctx, r.client, s)
	}
	return err
}

// holdingOn returns the nominated clusters where the workload's pods hold devices. It queries them
// only when the nomination is about to be widened. If that query fails, the time alone decides.
func (r *Reconciler) holdingOn(ctx context.Context, s *lifecycle.Situation) []string {
	owners := s.Request.Owners(s.Workload)
	if !s.IsWideningDue() || s.Room.Fleet.Problem != "" || len(owners) == 0 {
		return nil
	}
	clusters, err := r.cache.HolderClusters(ctx, s.Room.Key, owners)
	if err != nil {
		log.FromContext(ctx).Info("Widening does not wait for an admission: the query for the holders of devices failed", "error", err.Error())
		return nil
	}
	return slices.DeleteFunc(clusters, func(c string) bool { return !slices.Contains(s.Workload.Status.NominatedClusterNames, c) })
}

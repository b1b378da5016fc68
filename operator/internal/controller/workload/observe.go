package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/registry"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
)

// newSituation has what does not depend on the workload.
func (r *Reconciler) newSituation(key types.NamespacedName) *lifecycle.Situation {
	return &lifecycle.Situation{Key: key, Now: r.now(), MultiKueue: lifecycle.MultiKueue{Nominates: r.nominates}, Room: lifecycle.Room{LedgerTTL: r.ledger.TTL}}
}

// observe reads the workload and every object that its next step depends on.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*lifecycle.Situation, error) {
	o := r.newSituation(key)
	o.Room.HasTurn = r.waiting.HasTurn(key)
	wl := &kueue.Workload{}
	if err := r.client.Get(ctx, key, wl); apierrors.IsNotFound(err) {
		return o, nil
	} else if err != nil {
		return nil, err
	}
	if !kueuestate.HoldsQuota(wl) {
		r.observeRecord(o, wl)
		return o, r.observeLostQuota(ctx, o)
	}
	return o, r.observeWorkload(ctx, o, wl)
}

// observeRecord reads what the controller itself knows of the workload.
func (r *Reconciler) observeRecord(o *lifecycle.Situation, wl *kueue.Workload) {
	o.Workload = wl
	o.History, o.MultiKueue.Lag = r.histories.get(wl.UID), r.lag.At(o.Now)
	o.MultiKueue.EvictionLag = max(o.MultiKueue.Lag, r.evictions.At(o.Now))
	o.Record = lifecycle.DecodeRecord(wl, o.Now)
}

func (r *Reconciler) observeWorkload(ctx context.Context, o *lifecycle.Situation, wl *kueue.Workload) error {
	r.observeRecord(o, wl)
	if err := r.observeChecks(ctx, o); err != nil {
		return err
	}
	if err := r.observeComponents(ctx, o); err != nil {
		return err
	}
	if err := r.observeReplacedSlice(ctx, o); err != nil {
		return err
	}
	if err := r.observeFlavors(ctx, o); err != nil {
		return err
	}
	if o.Checks.MultiKueue == "" {
		o.Request.NodeRequirements = o.RequirementsOnNodes()
	} else if err := r.observeWorkers(ctx, o); err != nil {
		return err
	}
	if len(o.Checks.Own) > 0 {
		if err := r.observeGate(ctx, o); err != nil {
			return err
		}
	}
	if err := r.observeProfile(ctx, o); err != nil {
		return err
	}
	if err := r.observeClaimTemplates(ctx, o); err != nil {
		return err
	}
	o.Request.Facts = o.FactsUnder(o.Workload, &o.Gate.Spec)
	o.Gate.TotalWaiting = r.registry.TotalWaiting()
	o.Gate.Conflict = r.registry.Conflict(o.Gate.Name, o.Now)
	return nil
}

func (r *Reconciler) observeChecks(ctx context.Context, o *lifecycle.Situation) error {
	forgetChecks(o)
	gates := map[string]string{}
	for _, entry := range o.Workload.Status.AdmissionChecks {
		check := &kueue.AdmissionCheck{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: string(entry.Name)}, check); apierrors.IsNotFound(err) {
			continue // Kueue removes the entry of a deleted check
		} else if err != nil {
			return err
		}
		if name, ok := kueuestate.GateOf(check); ok {
			o.Checks.Own, gates[check.Name] = append(o.Checks.Own, check.Name), name
		}
		if check.Spec.ControllerName == v1alpha1.TrialControllerName {
			o.Checks.Trials = append(o.Checks.Trials, check.Name)
		}
		if name, ok := kueuestate.MultiKueueConfigOf(check); ok {
			o.Checks.MultiKueue, o.MultiKueue.Config = check.Name, name
		}
	}
	slices.Sort(o.Checks.Own)
	if len(o.Checks.Own) > 0 {
		o.Gate.Name = gates[o.Checks.Own[0]]
	}
	return nil
}

// observeFlavors reads the flavors that Kueue assigned. A flavor that does not exist has no
// labels; any other error ends the reconciliation, because a missing label would widen the
// workload to every device model.
func (r *Reconciler) observeFlavors(ctx context.Context, o *lifecycle.Situation) error {
	o.Request.FlavorLabels = map[string]map[string]string{}
	if o.Workload.Status.Admission == nil {
		return nil
	}
	for _, name := range o.AssignedFlavors() {
		flavor := &kueue.ResourceFlavor{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, flavor); client.IgnoreNotFound(err) != nil {
			return err
		}
		o.Request.FlavorLabels[name] = flavor.Spec.NodeLabels
	}
	return r.observeQueue(ctx, o)
}

func (r *Reconciler) observeWorkers(ctx context.Context, o *lifecycle.Situation) error {
	o.MultiKueue.ConnectedSince, o.MultiKueue.Disconnected = map[string]time.Time{}, map[string]string{}
	config := &kueue.MultiKueueConfig{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: o.MultiKueue.Config}, config); err != nil {
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
		if why == "" && !kueuestate.AllowsCluster(o.Workload, name) {
			why = "is not in annotation " + kueuestate.ClusterNamesAnnotation
		}
		if why != "" {
			o.MultiKueue.Disconnected[name] = why
			continue
		}
		o.MultiKueue.Connected = append(o.MultiKueue.Connected, name)
		active := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive)
		o.MultiKueue.ConnectedSince[name] = active.LastTransitionTime.Time
	}
	return nil
}

// observeGate takes the gate from the registry. If the registry does not have it, the API
// server's spec at least provides the widening times and the model's labels.
func (r *Reconciler) observeGate(ctx context.Context, o *lifecycle.Situation) error {
	name := o.Gate.Name
	o.Gate.Gate, o.Gate.Known = r.registry.Get(name)
	o.Gate.Exists = o.Gate.Known
	if !o.Gate.Known {
		pg := &v1alpha1.PlacementGate{}
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, pg)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		o.Gate.Exists, o.Gate.Gate = err == nil, registry.Gate{Name: name, Spec: pg.Spec, UID: pg.UID, Generation: pg.Generation}
		return nil
	}
	if mk := o.Gate.Spec.MultiKueue; o.Gate.Problem == "" && mk != nil && o.Checks.MultiKueue != "" && mk.ConfigName != o.MultiKueue.Config {
		o.Gate.Problem = fmt.Sprintf("admission check %s uses MultiKueueConfig %s but the gate maintains %s; name the same in both", o.Checks.MultiKueue, o.MultiKueue.Config, mk.ConfigName)
	}
	return nil
}

// observeProfile reads the JobProfile of the workload, if a query of the gate reads it. Runs of the
// components of a job have no profile.
func (r *Reconciler) observeProfile(ctx context.Context, o *lifecycle.Situation) error {
	if !shape.UsesProfiles(&o.Gate.Spec) || kueuestate.IsComponent(o.Workload) {
		return nil
	}
	p := &v1alpha1.JobProfile{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: o.Key.Namespace, Name: profile.RecordedName(o.Workload)}, p)
	if err == nil {
		o.Request.Profile = &p.Status
	}
	return client.IgnoreNotFound(err)
}

// measure adds what a decision needs: query results, the ledger's view and the pending
// workloads. Other phases need none of it.
func (r *Reconciler) measure(ctx context.Context, o *lifecycle.Situation) error {
	switch {
	case o.Decides():
		r.measureRoom(ctx, o)
	case lifecycle.PhaseOf(o) == lifecycle.PhaseGateUnknown && o.Gate.Exists:
		o.Room.Key = r.cache.KeyOf(o.Gate.Gate, o.JobFacts())
	}
	return r.measureOthers(ctx, o)
}

// measureOthers adds whether other workloads wait for the quota of a workload that may yield.
func (r *Reconciler) measureOthers(ctx context.Context, o *lifecycle.Situation) error {
	if !o.Decides() && lifecycle.PhaseOf(o) != lifecycle.PhaseAwaitingPrimary || !o.MayYield() {
		return nil
	}
	var err error
	o.Room.OthersPending, err = r.pending.hasOther(ctx, r.client, o.Workload, o.Now)
	return err
}

// measureRoom adds the query results and the ledger's view.
func (r *Reconciler) measureRoom(ctx context.Context, o *lifecycle.Situation) {
	candidates, fleet := r.cache.Candidates(ctx, o.Gate.Gate, o.JobFacts())
	r.addRoom(o, candidates, fleet)
	o.Room.HoldingOn = r.holdingOn(ctx, o)
}

// addRoom adds query results of the job's facts, and the ledger's view.
func (r *Reconciler) addRoom(o *lifecycle.Situation, candidates []gate.Candidate, fleet gate.Fleet) {
	o.Room.Key = r.cache.KeyOf(o.Gate.Gate, o.JobFacts())
	o.Room.Fleet = fleet
	o.Room.Candidates = o.Usable(candidates)
	o.Room.View = r.viewFor(o)
	o.Room.Preceding = r.waiting.Preceding(o.WaitEntry(o.Room.Key))
}

// holdingOn returns the nominated clusters where the workload's pods hold devices. It queries them
// only when the nomination is about to be widened. If that query fails, the time alone decides.
func (r *Reconciler) holdingOn(ctx context.Context, o *lifecycle.Situation) []string {
	owners := o.Owners()
	if !o.IsWideningDue() || o.Room.Fleet.Problem != "" || len(owners) == 0 {
		return nil
	}
	clusters, err := r.cache.HolderClusters(ctx, o.Room.Key, owners)
	if err != nil {
		log.FromContext(ctx).Info("Widening does not wait for an admission: the query for the holders of devices failed", "error", err.Error())
		return nil
	}
	return slices.DeleteFunc(clusters, func(c string) bool { return !slices.Contains(o.Workload.Status.NominatedClusterNames, c) })
}

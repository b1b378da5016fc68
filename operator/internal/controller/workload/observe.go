package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/querycache"
	"plimsoll.dev/plimsoll/operator/internal/admission/registry"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
)

// observe reads the workload and every object that its next step depends on.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*observation, error) {
	o := &observation{key: key, now: r.now(), nominates: r.nominates, ledgerTTL: r.ledger.TTL, hasTurn: r.waiting.HasTurn(key)}
	wl := &kueue.Workload{}
	if err := r.client.Get(ctx, key, wl); apierrors.IsNotFound(err) {
		return o, nil
	} else if err != nil {
		return nil, err
	}
	if !kueuestate.HoldsQuota(wl) {
		o.observeRecord(r, wl)
		return o, r.observeLostQuota(ctx, o)
	}
	return o, r.observeWorkload(ctx, o, wl)
}

// observeRecord reads what the controller itself knows of the workload.
func (o *observation) observeRecord(r *Reconciler, wl *kueue.Workload) {
	o.wl = wl
	o.history, o.lag = r.histories.get(wl.UID), r.lag.At(o.now)
	o.evictionLag = max(o.lag, r.evictions.At(o.now))
	o.readRecord()
}

// readRecord reads the annotation plimsoll.dev/dispatch.
func (o *observation) readRecord() {
	o.record, o.recordErr = dispatch.Decode(o.wl.Annotations)
	o.record = o.record.Until(o.now)
}

func (r *Reconciler) observeWorkload(ctx context.Context, o *observation, wl *kueue.Workload) error {
	o.observeRecord(r, wl)
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
	if o.multiKueue == "" {
		o.nodeRequirements = o.requirementsOnNodes()
	} else if err := r.observeWorkers(ctx, o); err != nil {
		return err
	}
	if len(o.checks) > 0 {
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
	o.facts = o.factsUnder(o.wl, &o.gate.Spec)
	o.totalWaiting = r.registry.TotalWaiting()
	o.conflictEvidence = r.registry.Conflict(o.gateName, o.now)
	return nil
}

func (r *Reconciler) observeChecks(ctx context.Context, o *observation) error {
	o.forgetChecks()
	gates := map[string]string{}
	for _, entry := range o.wl.Status.AdmissionChecks {
		check := &kueue.AdmissionCheck{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: string(entry.Name)}, check); apierrors.IsNotFound(err) {
			continue // Kueue removes the entry of a deleted check
		} else if err != nil {
			return err
		}
		if name, ok := kueuestate.GateOf(check); ok {
			o.checks, gates[check.Name] = append(o.checks, check.Name), name
		}
		if check.Spec.ControllerName == v1alpha1.TrialControllerName {
			o.trialChecks = append(o.trialChecks, check.Name)
		}
		if name, ok := kueuestate.MultiKueueConfigOf(check); ok {
			o.multiKueue, o.workers.config = check.Name, name
		}
	}
	slices.Sort(o.checks)
	if len(o.checks) > 0 {
		o.gateName = gates[o.checks[0]]
	}
	return nil
}

// observeFlavors reads the flavors that Kueue assigned. A flavor that does not exist has no
// labels; any other error ends the reconciliation, because a missing label would widen the
// workload to every device model.
func (r *Reconciler) observeFlavors(ctx context.Context, o *observation) error {
	o.flavorLabels = map[string]map[string]string{}
	if o.wl.Status.Admission == nil {
		return nil
	}
	for _, name := range o.assignedFlavors() {
		flavor := &kueue.ResourceFlavor{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, flavor); client.IgnoreNotFound(err) != nil {
			return err
		}
		o.flavorLabels[name] = flavor.Spec.NodeLabels
	}
	return r.observeQueue(ctx, o)
}

func (r *Reconciler) observeWorkers(ctx context.Context, o *observation) error {
	o.workers.connectedSince, o.workers.disconnected = map[string]time.Time{}, map[string]string{}
	config := &kueue.MultiKueueConfig{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: o.workers.config}, config); err != nil {
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
		if why == "" && !kueuestate.AllowsCluster(o.wl, name) {
			why = "is not in annotation " + kueuestate.ClusterNamesAnnotation
		}
		if why != "" {
			o.workers.disconnected[name] = why
			continue
		}
		o.workers.connected = append(o.workers.connected, name)
		active := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive)
		o.workers.connectedSince[name] = active.LastTransitionTime.Time
	}
	return nil
}

// observeGate takes the gate from the registry. If the registry does not have it, the API
// server's spec at least provides the widening times and the model's labels.
func (r *Reconciler) observeGate(ctx context.Context, o *observation) error {
	o.gate, o.gateKnown = r.registry.Get(o.gateName)
	o.gateExists = o.gateKnown
	if !o.gateKnown {
		pg := &v1alpha1.PlacementGate{}
		err := r.client.Get(ctx, client.ObjectKey{Name: o.gateName}, pg)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		o.gateExists, o.gate = err == nil, registry.Gate{Name: o.gateName, Spec: pg.Spec, UID: pg.UID, Generation: pg.Generation}
		return nil
	}
	if mk := o.gate.Spec.MultiKueue; o.gate.Problem == "" && mk != nil && o.multiKueue != "" && mk.ConfigName != o.workers.config {
		o.gate.Problem = fmt.Sprintf("admission check %s uses MultiKueueConfig %s but the gate maintains %s; name the same in both", o.multiKueue, o.workers.config, mk.ConfigName)
	}
	return nil
}

// observeProfile reads the JobProfile of the workload, if a query of the gate reads it. Runs of the
// components of a job have no profile.
func (r *Reconciler) observeProfile(ctx context.Context, o *observation) error {
	if !shape.UsesProfiles(&o.gate.Spec) || kueuestate.IsComponent(o.wl) {
		return nil
	}
	p := &v1alpha1.JobProfile{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: o.key.Namespace, Name: profile.RecordedName(o.wl)}, p)
	if err == nil {
		o.profile = &p.Status
	}
	return client.IgnoreNotFound(err)
}

// measure adds what a decision needs: query results, the ledger's view and the pending
// workloads. Other phases need none of it.
func (r *Reconciler) measure(ctx context.Context, o *observation) error {
	switch {
	case o.decides():
		r.measureRoom(ctx, o)
	case o.phase == PhaseGateUnknown && o.gateExists:
		o.queryKey = r.cache.KeyOf(o.gate, o.jobFacts())
	}
	return r.measureOthers(ctx, o)
}

// measureOthers adds whether other workloads wait for the quota of a workload that may yield.
func (r *Reconciler) measureOthers(ctx context.Context, o *observation) error {
	if !o.decides() && o.phase != PhaseAwaitingPrimary || !o.mayYield() {
		return nil
	}
	var err error
	o.othersPending, err = r.pending.hasOther(ctx, r.client, o.wl, o.now)
	return err
}

// measureRoom adds the query results and the ledger's view.
func (r *Reconciler) measureRoom(ctx context.Context, o *observation) {
	results, fleet := r.cache.Results(ctx, o.gate, o.jobFacts())
	r.addResults(o, results, fleet)
	o.holdingOn = r.holdingOn(ctx, o)
}

// addResults adds query results of the job's facts, and the ledger's view.
func (r *Reconciler) addResults(o *observation, results map[string]querycache.ClusterResult, fleet gate.Fleet) {
	o.queryKey = r.cache.KeyOf(o.gate, o.jobFacts())
	o.fleet = fleet
	o.candidates = o.candidatesWith(results)
	o.view = r.viewFor(o)
	o.preceding = r.waiting.Preceding(o.waitEntry(o.queryKey))
}

// holdingOn returns the nominated clusters where the workload's pods hold devices. It queries them
// only when the nomination is about to be widened. If that query fails, the time alone decides.
func (r *Reconciler) holdingOn(ctx context.Context, o *observation) []string {
	owners := o.owners()
	if !o.isWideningDue() || o.fleet.Problem != "" || len(owners) == 0 {
		return nil
	}
	clusters, err := r.cache.HolderClusters(ctx, o.queryKey, owners)
	if err != nil {
		log.FromContext(ctx).Info("Widening does not wait for an admission: the query for the holders of devices failed", "error", err.Error())
		return nil
	}
	return slices.DeleteFunc(clusters, func(c string) bool { return !slices.Contains(o.wl.Status.NominatedClusterNames, c) })
}

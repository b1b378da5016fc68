package whatif

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Times of the ledger, as the operator has them by default.
const (
	ledgerSettle = 15 * time.Second
	ledgerTTL    = 10 * time.Minute
)

// Question is the state of a fleet, and the gate that decides.
type Question struct {
	Gate *v1alpha1.PlacementGate
	// Clusters that the gate may choose from, with their scores.
	Clusters []gatestate.Cluster
	// Source of the gate's queries.
	Source  query.SourceInfo
	Querier query.Querier
	// Held are the clusters that the operator holds, by the namespace/name of the workload.
	Held map[string]string
	// Hub are the objects of Kueue, PriorityClasses and the ManagedClusters of the hub; empty = there is no hub: quota is not limited, and
	// each cluster is connected to MultiKueue.
	Hub []client.Object
	// Local: MultiKueue copies no job, so that no worker's quota limits it.
	Local bool
	// Ledger has the devices of jobs that were sent before; nil = there are none.
	Ledger *ledger.Ledger
	Now    func() time.Time
}

// Fleet is a copy of a hub, at which jobs are asked about one after the other.
type Fleet struct {
	gate    *v1alpha1.PlacementGate
	isLocal bool
	hub     client.Client
	ledger  *ledger.Ledger
	gates   *gatestate.Registry
	opts    workload.Options
	// explainer is the operator's own controller.
	explainer *workload.Reconciler
	names     []string
	asked     int
	// hasHub: the copy is of a hub.
	hasHub bool
	// answers about workloads of the hub.
	answers map[client.ObjectKey]*Answer
}

// Outcome is what happens to a job if it is submitted now.
type Outcome string

// Outcomes of a job.
const (
	// Now: a cluster can start it.
	Now Outcome = "Now"
	// Later: it waits.
	Later Outcome = "Later"
	// Never: no cluster could start it, even if it were empty.
	Never Outcome = "Never"
	// Unknown: the metrics do not tell.
	Unknown Outcome = "Unknown"
)

// Answer is what the gate decides about a job.
type Answer struct {
	gate.Explanation
	// Job is KIND/NAME of the job.
	Job     string
	Outcome Outcome
	// Flavors that the job is assumed to get, by pod set and resource.
	Flavors map[string]map[string]string
	// Assumed is what the answer takes for granted.
	Assumed []string
}

// New returns a copy of a hub with the gate.
func New(ctx context.Context, q Question) (*Fleet, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, v1alpha1.AddToScheme, clusterv1.Install, schedulingv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&kueue.Workload{})
	err := workload.AddIndexes(func(obj client.Object, field string, extract client.IndexerFunc) error {
		hub.WithIndex(obj, field, extract)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, object := range q.Hub {
		if object.GetDeletionTimestamp() == nil {
			object.SetFinalizers(nil) // no Kueue removes them from the copy
			hub.WithObjects(object)
		} else if len(object.GetFinalizers()) > 0 { // the others are about to vanish
			hub.WithObjects(object)
		}
	}
	f := &Fleet{gate: q.Gate, isLocal: q.Local, hub: hub.Build(), ledger: cmp.Or(q.Ledger, ledger.New(ledgerSettle, ledgerTTL)), gates: gatestate.New(), hasHub: len(q.Hub) > 0, answers: map[client.ObjectKey]*Answer{}}
	var clusters []gatestate.Cluster
	for _, c := range q.Clusters {
		if !slices.Contains(f.names, c.Name) {
			f.names, clusters = append(f.names, c.Name), append(clusters, c)
		}
	}
	sources := &query.Sources{}
	source := q.Source
	source.Name = q.Gate.Spec.SourceRef.Name
	sources.Set(source, &memo{Querier: q.Querier, results: map[string]func() (query.Result, error){}})
	spec := q.Gate.Spec
	spec.Mode = v1alpha1.ModeEnforce // a gate in mode Shadow would answer that the job passes
	f.gates.Put(gatestate.Gate{Name: q.Gate.Name, Spec: spec, Clusters: clusters, UID: q.Gate.UID, Generation: max(q.Gate.Generation, 1)})
	f.opts = workload.Options{Registry: f.gates, Ledger: f.ledger, Sources: sources, Nominate: true, Now: q.Now}
	if err := f.connect(ctx); err != nil {
		return nil, err
	}
	if f.explainer, err = workload.NewExplainer(ctx, f.hub, f.opts); err != nil {
		return nil, err
	}
	return f, f.hold(ctx, q.Held)
}

// hold decides about the workloads for which the operator holds clusters, so that they keep these for themselves.
func (f *Fleet) hold(ctx context.Context, held map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(held)) {
		wl := &kueue.Workload{}
		namespace, own, _ := strings.Cut(name, "/")
		if found, err := hubstate.Find(ctx, f.hub, client.ObjectKey{Namespace: namespace, Name: own}, wl); err != nil {
			return err
		} else if !found {
			continue
		}
		answer, err := f.Ask(ctx, wl)
		if err != nil {
			return err
		}
		if hold := answer.Decision.Hold; hold != nil && hold.Cluster != held[name] {
			hold.Cluster = held[name]
			f.ledger.Commit(f.ledger.View(), hold.UID, nil, nil, hold)
		}
	}
	return nil
}

// Ask submits a job and says what the gate decides, once it has decided about the waiting workloads that come first. The
// devices of a job that starts are taken for the jobs that are asked about later.
func (f *Fleet) Ask(ctx context.Context, wl *kueue.Workload) (*Answer, error) {
	answer := &Answer{Job: wl.Name}
	if wl.UID != "" { // of the hub: it is decided once
		if earlier := f.answers[client.ObjectKeyFromObject(wl)]; earlier != nil {
			return earlier, nil
		}
		f.answers[client.ObjectKeyFromObject(wl)] = answer
	}
	for _, owner := range wl.OwnerReferences[:min(1, len(wl.OwnerReferences))] {
		answer.Job = strings.ToLower(owner.Kind) + "/" + owner.Name
	}
	submitted, err := f.submit(ctx, wl, answer)
	if err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(submitted)
	for {
		explanation, err := f.explainer.Explain(ctx, key)
		if err != nil {
			return nil, err
		}
		answer.Explanation, answer.Outcome = *explanation, outcomeOf(explanation)
		first := &kueue.Workload{}
		if explanation.Decision.Reason != gate.ReasonQueued || explanation.Preceding == "" {
			break
		}
		namespace, name, _ := strings.Cut(explanation.Preceding, "/")
		if err := f.hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, first); err != nil {
			return nil, fmt.Errorf("read a workload that is decided first: %w", err)
		}
		if _, err := f.Ask(ctx, first); err != nil {
			return nil, err
		}
	}
	if err := f.hub.Delete(ctx, submitted); err != nil {
		return nil, fmt.Errorf("remove the copy of the job: %w", err)
	}
	f.take(string(submitted.UID), answer)
	return answer, nil
}

// take reserves the devices of a job that starts, or the cluster that the gate holds for it.
func (f *Fleet) take(uid string, a *Answer) {
	var entries []ledger.Entry
	if a.Outcome == Now {
		entries = []ledger.Entry{{UID: uid, Workload: a.Workload, Cluster: a.Decision.Order[0], Queue: ledger.QueueOf(&a.Facts), PodSets: a.Facts.PodSets, DebitedAt: f.opts.Now()}}
	}
	f.ledger.Commit(f.ledger.View(), uid, nil, entries, a.Decision.Hold)
}

// unknown are the reasons of decisions that better metrics may change.
var unknown = []string{gate.ReasonNoDecisions, gate.ReasonStale, gate.ReasonNoMetrics, gate.ReasonGateNotReady}

func outcomeOf(e *gate.Explanation) Outcome {
	switch d := e.Decision; {
	case d.State == gate.Ready:
		return Now
	case d.Reason == "" || slices.Contains(unknown, d.Reason):
		return Unknown
	case d.Prospect == gate.ProspectNever:
		return Never
	}
	return Later
}

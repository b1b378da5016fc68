// Package ask puts together what a gate decides about a job from: files, Prometheus and, if there is one, the hub. It shows
// the answers of package whatif.
package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/evaluation"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/manifest"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/whatif"
)

// Help describes where a question is put together from.
const Help = `The gate is the one in the files, that of --gate on the hub, or that of the job's queue. Without a hub
and a gate in the files, it is a gate with default queries. The files may also hold the MetricsSource of
the gate with its Secrets, and ScoringPolicies, which are evaluated; other scores are those that are
published on the hub.

With a hub, the answer regards its ClusterQueues, flavors, checks and the jobs on their way, and it takes
for granted that Kueue gives the job quota. Without one, quota is not limited on the hub, and the
clusters are those of --clusters or of the metrics. Several jobs are placed one after the other.`

// Question is what the flags of a command ask.
type Question struct {
	evaluation.Flags
	// GateName is a gate of the hub; empty = that of the files or of the queue.
	GateName string
	// JobFiles are files with jobs, besides those in Files.
	JobFiles []string
	// Workload of the hub, by NAME or KIND/NAME.
	Workload string
	// Waiting asks about all workloads of the hub that wait for a cluster.
	Waiting bool
}

// asked is a question with its parts.
type asked struct {
	app       *command.App
	question  *Question
	manifests *manifest.Manifests
	hub       client.Client // nil = there is none
	objects   []client.Object
	jobs      []*kueue.Workload
	gate      *v1alpha1.PlacementGate
	source    *prometheus.Source
}

// Answer answers a question. A job for which its queue has several gates, each for other flavors, has an answer of each.
func (q *Question) Answer(ctx context.Context, a *command.App, m *manifest.Manifests) (answers []*whatif.Answer, err error) {
	k := &asked{app: a, question: q, manifests: m}
	if err := k.readHub(ctx); err != nil {
		return nil, err
	}
	if err := k.readJobs(ctx); err != nil {
		return nil, err
	}
	fleets := map[string]*whatif.Fleet{}
	for _, wl := range k.jobs {
		gates, err := k.gatesOf(ctx, wl)
		if err != nil {
			return nil, err
		}
		decided := 0
		for _, g := range gates {
			if fleets[g.Name] == nil {
				own := *k
				own.gate = g
				var closeSource func()
				if fleets[g.Name], closeSource, err = own.newFleet(ctx); err != nil {
					return nil, err
				}
				defer closeSource()
			}
			switch answer, err := fleets[g.Name].Ask(ctx, wl); {
			case errors.Is(err, whatif.ErrOtherGate):
			case err != nil:
				return nil, err
			default:
				answers, decided = append(answers, answer), decided+1
			}
		}
		if decided == 0 {
			return nil, fmt.Errorf("%s/%s: %w", wl.Namespace, wl.Name, whatif.ErrOtherGate)
		}
	}
	return answers, nil
}

// newFleet copies the hub with the gate. The source of the gate's queries is to be closed.
func (k *asked) newFleet(ctx context.Context) (fleet *whatif.Fleet, closeSource func(), err error) {
	if k.source, err = k.question.ConnectTo(ctx, k.app, k.manifests, k.gate.Spec.SourceRef.Name); err != nil {
		return nil, nil, err
	}
	clusters, err := k.clusters(ctx)
	if err == nil {
		held := map[string]string{}
		for _, h := range k.gate.Status.Holds {
			if !h.Shadow {
				held[h.Workload] = h.Cluster
			}
		}
		fleet, err = whatif.New(ctx, whatif.Question{Gate: k.gate, Clusters: clusters, Source: k.source.Info, Querier: k.source.Client, Held: held, Hub: copyOf(k.objects), Now: k.app.Now})
	}
	if err != nil {
		k.source.Client.Close()
		return nil, nil, err
	}
	return fleet, k.source.Client.Close, nil
}

func copyOf(objects []client.Object) []client.Object {
	copies := make([]client.Object, len(objects))
	for i, o := range objects {
		copies[i] = o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // all kinds are objects
	}
	return copies
}

// readHub copies what decisions depend on. A hub that can't be reached is none. One that answers and does not give all of
// it is an error, because limits would be missing.
func (k *asked) readHub(ctx context.Context) error {
	hub, _, err := hubclient.Connect(k.app)
	answers := false
	if err == nil {
		for _, list := range []client.ObjectList{&kueue.ClusterQueueList{}, &kueue.LocalQueueList{}, &kueue.CohortList{}, &kueue.ResourceFlavorList{}, &kueue.AdmissionCheckList{},
			&kueue.MultiKueueConfigList{}, &kueue.MultiKueueClusterList{}, &kueue.WorkloadList{}, &clusterv1.ManagedClusterList{}, &v1alpha1.JobProfileList{},
			&kueue.WorkloadPriorityClassList{}, &schedulingv1.PriorityClassList{}} {
			if err = hub.List(ctx, list); err != nil {
				break
			}
			answers = true
			k.objects = append(k.objects, itemsOf(list)...)
		}
	}
	var status apierrors.APIStatus
	switch {
	case err != nil && (answers || errors.As(err, &status) && !apierrors.IsNotFound(err)):
		return hubclient.Reading("read the hub", err)
	case err != nil && (k.question.Workload != "" || k.question.Waiting || k.question.GateName != ""):
		return err
	case err != nil:
		k.objects = nil
		_, _ = fmt.Fprintf(k.app.ErrOut, "without the limits of a hub, because it can't be read: %v\n", err)
		return nil
	}
	k.hub = hub
	return nil
}

// readJobs reads the jobs of the files, in their order, and those of the hub.
func (k *asked) readJobs(ctx context.Context) error {
	namespace, _, err := k.app.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return err
	}
	others := k.manifests.Others
	if len(k.question.JobFiles) > 0 {
		m, err := manifest.Read(k.app, k.question.JobFiles)
		if err != nil {
			return err
		}
		others = m.Others
	}
	var problems []error
	for _, object := range others {
		wl, err := whatif.WorkloadOf(object, namespace)
		if err == nil {
			k.jobs = append(k.jobs, wl)
		} else if whatif.IsJob(object) || len(others) == 1 && k.question.Workload == "" && !k.question.Waiting {
			problems = append(problems, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	switch {
	case k.question.Workload != "":
		wl, err := hubclient.FindWorkload(ctx, k.hub, namespace, k.question.Workload)
		if err != nil {
			return err
		}
		k.jobs = append(k.jobs, wl)
	case k.question.Waiting:
		k.jobs = append(k.jobs, k.waiting()...)
	case len(k.jobs) == 0:
		return fmt.Errorf("%s: no job of a kind that Kueue manages", strings.Join(append(k.question.Files, k.question.JobFiles...), ", "))
	}
	return nil
}

// waiting are the workloads that hold quota and wait for a gate or for MultiKueue, by priority, then by the time of their
// quota.
func (k *asked) waiting() (waiting []*kueue.Workload) {
	places := map[string]bool{}
	for _, object := range k.objects {
		if check, ok := object.(*kueue.AdmissionCheck); ok {
			_, isGate := kueuestate.GateOf(check)
			_, isMultiKueue := kueuestate.MultiKueueConfigOf(check)
			places[check.Name] = isGate || isMultiKueue
		}
	}
	isPlacing := func(c kueue.AdmissionCheckState) bool {
		return places[string(c.Name)] && c.State == kueue.CheckStatePending
	}
	for _, object := range k.objects {
		if wl, ok := object.(*kueue.Workload); ok && kueuestate.AcceptsCheckUpdate(wl) && !kueuestate.IsFinished(wl) && !kueuestate.IsAdmitted(wl) && kueuestate.ClusterOf(wl) == "" && len(wl.Status.NominatedClusterNames) == 0 &&
			wl.DeletionTimestamp == nil && slices.ContainsFunc(wl.Status.AdmissionChecks, isPlacing) {
			waiting = append(waiting, wl)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *kueue.Workload) int {
		return cmp.Or(cmp.Compare(ptr.Deref(b.Spec.Priority, 0), ptr.Deref(a.Spec.Priority, 0)), kueuestate.QuotaReservedAt(a).Compare(kueuestate.QuotaReservedAt(b)))
	})
	return waiting
}

// gatesOf finds the gates that decide about a job.
func (k *asked) gatesOf(ctx context.Context, wl *kueue.Workload) ([]*v1alpha1.PlacementGate, error) {
	var g *v1alpha1.PlacementGate
	var err error
	switch name := k.question.GateName; {
	case len(k.manifests.Gates) > 0:
		g, err = k.manifests.OnlyGate(k.question.Files...)
	case k.hub == nil:
		g, err = defaultGate()
	case name != "":
		g, err = k.readGate(ctx, name)
	default:
		return k.gatesOfQueue(ctx, wl)
	}
	return []*v1alpha1.PlacementGate{g}, err
}

func (k *asked) readGate(ctx context.Context, name string) (*v1alpha1.PlacementGate, error) {
	g := &v1alpha1.PlacementGate{}
	err := k.hub.Get(ctx, client.ObjectKey{Name: name}, g)
	return g, hubclient.Reading("PlacementGate "+name, err)
}

// gatesOfQueue are the gates that the checks of a job's queue name, sorted.
func (k *asked) gatesOfQueue(ctx context.Context, wl *kueue.Workload) (gates []*v1alpha1.PlacementGate, err error) {
	locals, queues, checks := map[client.ObjectKey]string{}, map[string]*kueue.ClusterQueue{}, map[string]string{}
	for _, object := range k.objects {
		switch o := object.(type) {
		case *kueue.LocalQueue:
			locals[client.ObjectKeyFromObject(o)] = string(o.Spec.ClusterQueue)
		case *kueue.ClusterQueue:
			queues[o.Name] = o
		case *kueue.AdmissionCheck:
			checks[o.Name], _ = kueuestate.GateOf(o)
		}
	}
	key := client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
	if locals[key] == "" && key.Name != "" {
		return nil, whatif.NoLocalQueue(key)
	}
	var names []string
	for _, check := range kueuestate.ChecksFor(queues[locals[key]], nil) {
		if checks[check] != "" {
			names = append(names, checks[check])
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		g, err := k.readGate(ctx, name)
		if err != nil {
			return nil, err
		}
		gates = append(gates, g)
	}
	if len(gates) == 0 {
		return nil, fmt.Errorf("the queue of %s/%s has no check of a PlacementGate: choose one with --gate, or pass a file with a PlacementGate", wl.Namespace, wl.Name)
	}
	return gates, nil
}

// defaultGate is a gate with default queries.
func defaultGate() (*v1alpha1.PlacementGate, error) {
	return manifest.DefaultGate(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PlacementGate", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"placementRef": map[string]any{"namespace": "default", "name": "default"}, "sourceRef": map[string]any{"name": "default"}},
	}})
}

// clusters are those that the gate may choose from, with their scores.
func (k *asked) clusters(ctx context.Context) ([]gatestate.Cluster, error) {
	names, err := k.clusterNames(ctx)
	if err != nil {
		return nil, err
	}
	scores := map[string]map[string]gate.Score{}
	if k.hub != nil {
		if scores, err = hubclient.ReadScores(ctx, k.hub); err != nil {
			return nil, hubclient.Reading("AddOnPlacementScores", err)
		}
	}
	for _, policy := range k.manifests.Policies() {
		if err := AddScores(ctx, scores, policy, k.source.Client, k.source.Info.ClusterLabel, names, k.app.Now()); err != nil {
			return nil, err
		}
	}
	clusters := make([]gatestate.Cluster, len(names))
	for i, name := range names {
		clusters[i] = gatestate.Cluster{Name: name, Scores: scores[name]}
	}
	return clusters, nil
}

// clusterNames are those of --clusters, the decisions of the gate's Placement, all of the hub if it has no such Placement,
// or without a hub those of the metrics.
func (k *asked) clusterNames(ctx context.Context) ([]string, error) {
	if len(k.question.Clusters) > 0 {
		return k.question.Clusters, nil
	}
	if k.hub == nil {
		return k.measuredClusters(ctx)
	}
	placement := client.ObjectKey{Namespace: k.gate.Spec.PlacementRef.Namespace, Name: k.gate.Spec.PlacementRef.Name}
	names, err := hubstate.DecidedClusters(ctx, k.hub, placement)
	if err != nil || len(names) > 0 {
		return names, hubclient.Reading("PlacementDecisions", err)
	}
	for _, object := range k.objects {
		if c, ok := object.(*clusterv1.ManagedCluster); ok && hubstate.IsMember(c) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	_, _ = fmt.Fprintf(k.app.ErrOut, "Placement %s has decided no cluster: asking about all %s of the hub\n", placement, format.Plural(len(names), "cluster"))
	return names, nil
}

// measuredClusters are the clusters whose samples have a time.
func (k *asked) measuredClusters(ctx context.Context) ([]string, error) {
	label := k.source.Info.ClusterLabel
	expr := gate.Queries(&k.gate.Spec, label)[0].Expr
	result, err := k.source.Client.Query(ctx, expr, k.app.Now())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range result.Samples {
		names = append(names, s.Labels[label])
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		return nil, fmt.Errorf("no cluster has metrics: %s has no series with the label %q. Load the recording rules of rules/, set another label with --cluster-label, or name the clusters with --clusters", expr, label)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

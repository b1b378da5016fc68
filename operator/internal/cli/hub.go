package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// hub tells what stands on its objects. What can't be read is noted, and the rest told.
type hub struct {
	client client.Client
	report *workloadReport
	stand  gate.Snapshot
	config *kueue.MultiKueueConfig // that the workload's check names; nil = none
}

func (h *hub) note(err error) bool {
	if err != nil {
		h.report.NotShown = append(h.report.NotShown, err.Error())
	}
	return err == nil
}

// checks of the workload, and which of them is ours.
func (h *hub) checks(ctx context.Context, wl *kueue.Workload) error {
	for _, state := range wl.Status.AdmissionChecks {
		entry := checkReport{Name: string(state.Name), State: string(state.State), Message: state.Message}
		check := &kueue.AdmissionCheck{}
		err := h.client.Get(ctx, client.ObjectKey{Name: entry.Name}, check)
		if client.IgnoreNotFound(err) != nil {
			return reading("AdmissionCheck "+entry.Name, err)
		}
		if name, ok := kueuestate.GateOf(check); ok {
			entry.Ours = true
			h.stand.Own = append(h.stand.Own, entry.Name)
			h.report.Gate, h.report.State, h.report.Message = name, entry.State, entry.Message
		}
		if name, ok := kueuestate.MultiKueueConfigOf(check); ok {
			h.stand.MultiKueue, h.stand.Config = entry.Name, name
		}
		h.report.Checks = append(h.report.Checks, entry)
	}
	return nil
}

// multiKueue's configuration, and those of its clusters that Kueue is connected to.
func (h *hub) multiKueue(ctx context.Context) {
	if h.stand.MultiKueue == "" {
		return
	}
	config := &kueue.MultiKueueConfig{}
	err := h.client.Get(ctx, client.ObjectKey{Name: h.stand.Config}, config)
	if client.IgnoreNotFound(err) != nil {
		h.note(reading("MultiKueueConfig "+h.stand.Config, err))
		return
	}
	config.Name, h.config = h.stand.Config, config
	for _, name := range config.Spec.Clusters {
		if h.unusable(ctx, name) == "" {
			h.stand.Connected = append(h.stand.Connected, name)
		}
	}
}

// explain as much as objects tell.
func (h *hub) explain(ctx context.Context, wl *kueue.Workload, now time.Time) {
	e := &h.report.Explanation
	e.Workload, e.Nominated = client.ObjectKeyFromObject(wl).String(), wl.Status.NominatedClusterNames
	e.Cluster = kueuestate.PlacedCluster(wl, h.stand.Own, h.stand.MultiKueue)
	var err error
	if e.Dispatch, err = dispatch.Decode(wl.Annotations); err != nil {
		e.Problem = err.Error()
	}
	h.multiKueue(ctx)
	h.stand.Workload, h.stand.Cluster, h.stand.Dispatch = wl, e.Cluster, e.Dispatch
	e.WaitsFor = h.stand.WaitsFor(now)
	scores, err := readScores(ctx, h.client)
	h.note(err)
	h.candidates(ctx, wl, scores, now)
	if e.Cluster == "" && !kueuestate.IsFinished(wl) {
		h.report.NotShown = append(h.report.NotShown, "each candidate's room, promised devices and age of samples: the operator knows them (--operator-url; see --help)")
	}
}

// candidates of the gate's Placement, and what ruled out those that need no metrics
// to be ruled out; then the clusters that have scores and are not eligible.
func (h *hub) candidates(ctx context.Context, wl *kueue.Workload, scores map[string]map[string]gate.Score, now time.Time) {
	e := &h.report.Explanation
	placed := map[string]bool{}
	if g := h.gate(ctx); g != nil {
		e.Facts = shape.FactsOf(wl, shape.OptionsOf(&g.Spec, h.flavorLabels(ctx)))
		var list []gate.Candidate
		for _, name := range h.decided(ctx, g.Spec.PlacementRef) {
			list = append(list, gate.Candidate{Name: name, Scores: scores[name], Unusable: h.unusable(ctx, name)})
		}
		rules, known := gate.RulesOf(&g.Spec), e.Facts
		known.PodSets = nil // room, age of samples and whom an attempt draws are the operator's to tell
		_, e.Clusters = gate.Explain(known, list, gate.Fleet{}, ledger.View{}, rules, 0, now)
		for i := range e.Clusters {
			placed[e.Clusters[i].Cluster] = true
			if e.Clusters[i].Rejection == gate.RejectNone {
				e.Clusters[i].Why = "is eligible"
			}
		}
		if len(list) == 0 {
			e.Problem = "Placement " + rules.Placement + " has decided no cluster"
		}
		for _, name := range slices.Sorted(maps.Keys(scores)) {
			if !placed[name] {
				why := "is not among the decisions of Placement " + rules.Placement
				e.Clusters = append(e.Clusters, gate.ClusterExplanation{
					Verdict: gate.Verdict{Cluster: name, Rejection: gate.RejectUnusable, Detail: why, Age: -1}, Why: why, Scores: scores[name],
				})
			}
		}
	}
}

func (h *hub) gate(ctx context.Context) *v1alpha1.PlacementGate {
	if h.report.Gate == "" {
		return nil
	}
	g := &v1alpha1.PlacementGate{}
	err := h.client.Get(ctx, client.ObjectKey{Name: h.report.Gate}, g)
	if client.IgnoreNotFound(err) == nil && err != nil {
		h.report.Problem = "PlacementGate " + h.report.Gate + " does not exist"
		return nil
	}
	if !h.note(reading("PlacementGate "+h.report.Gate, err)) {
		return nil
	}
	if c := apimeta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != "True" {
		h.report.Problem = fmt.Sprintf("PlacementGate %s is not ready: %s", g.Name, c.Message)
	}
	return g
}

// decided is the union of the Placement's decisions.
func (h *hub) decided(ctx context.Context, placement v1alpha1.NamespacedReference) []string {
	list := &clusterv1beta1.PlacementDecisionList{}
	err := h.client.List(ctx, list, client.InNamespace(placement.Namespace), client.MatchingLabels{clusterv1beta1.PlacementLabel: placement.Name})
	if !h.note(reading("PlacementDecisions of "+placement.Namespace+"/"+placement.Name, err)) {
		return nil
	}
	var names []string
	for _, d := range list.Items {
		for _, c := range d.Status.Decisions {
			names = append(names, c.ClusterName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// unusable says why nothing can be sent to a cluster; empty where all is well or
// can't be told.
func (h *hub) unusable(ctx context.Context, name string) string {
	if h.config == nil {
		return ""
	}
	cluster := &kueue.MultiKueueCluster{}
	err := h.client.Get(ctx, client.ObjectKey{Name: name}, cluster)
	if client.IgnoreNotFound(err) != nil {
		h.note(reading("MultiKueueCluster "+name, err))
		return ""
	}
	if err != nil {
		cluster = nil
	}
	return kueuestate.DisconnectedReason(h.config, name, cluster)
}

func (h *hub) flavorLabels(ctx context.Context) func(string) map[string]string {
	return func(name string) map[string]string {
		flavor := &kueue.ResourceFlavor{}
		if err := h.client.Get(ctx, client.ObjectKey{Name: name}, flavor); err != nil {
			h.note(reading("ResourceFlavor "+name, err))
			return nil
		}
		return flavor.Spec.NodeLabels
	}
}

// readScores of every cluster, by cluster and key.
func readScores(ctx context.Context, c client.Client) (map[string]map[string]gate.Score, error) {
	list := &clusterv1alpha1.AddOnPlacementScoreList{}
	if err := c.List(ctx, list); err != nil {
		return nil, reading("AddOnPlacementScores", err)
	}
	all := map[string]map[string]gate.Score{}
	for i := range list.Items {
		object := &list.Items[i]
		if all[object.Namespace] == nil {
			all[object.Namespace] = map[string]gate.Score{}
		}
		maps.Copy(all[object.Namespace], gate.ScoresOf(object))
	}
	return all, nil
}

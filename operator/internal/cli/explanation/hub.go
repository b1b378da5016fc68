package explanation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
)

// hubExplainer explains a workload from the objects on the hub. Facts that it can't
// read are listed in the report's NotShown, and the explanation goes on without them.
type hubExplainer struct {
	client client.Reader
	report *explain.Report
	stand  gate.Snapshot
	checks kueuestate.Checks
	// config is the MultiKueueConfig of the workload's MultiKueue check. It is nil if
	// the workload has no such check, or if the config can't be read.
	config *kueue.MultiKueueConfig
}

// noteFailure lists a failed read of the hub in the report. It returns true if err is
// not nil.
func (h *hubExplainer) noteFailure(err error) bool {
	if err != nil {
		h.report.NotShown = append(h.report.NotShown, hubclient.Reading("read hub", err).Error())
	}
	return err != nil
}

// readChecks lists the admission checks of the workload and finds the checks of
// PlacementGates and of MultiKueue among them. AdmissionChecks are cluster-scoped: a user
// with a RoleBinding can't read them. The report notes that once, and lists all checks.
func (h *hubExplainer) readChecks(ctx context.Context, wl *kueue.Workload) {
	h.checks, _ = kueuestate.ChecksOf(wl, func(name string) (*kueue.AdmissionCheck, error) {
		check := &kueue.AdmissionCheck{}
		if !h.stand.ChecksUnknown {
			_, err := hubstate.Find(ctx, h.client, client.ObjectKey{Name: name}, check)
			h.stand.ChecksUnknown = h.noteFailure(err)
		}
		return check, nil
	})
	h.stand.Own, h.stand.MultiKueue, h.stand.Config = h.checks.Own, h.checks.MultiKueue, h.checks.Config
	for _, state := range wl.Status.AdmissionChecks {
		entry := explain.Check{Name: string(state.Name), State: string(state.State), Message: state.Message, Ours: slices.Contains(h.checks.Own, string(state.Name))}
		if entry.Ours {
			h.report.Gate, h.report.State, h.report.Message = h.checks.Gates[entry.Name], entry.State, entry.Message
		}
		h.report.Checks = append(h.report.Checks, entry)
	}
}

// readMultiKueue reads the MultiKueueConfig of the workload's MultiKueue check and
// finds the clusters that Kueue is connected to. A config that does not exist counts
// as empty.
func (h *hubExplainer) readMultiKueue(ctx context.Context) {
	if h.stand.MultiKueue == "" {
		return
	}
	config, err := hubstate.MultiKueueConfig(ctx, h.client, h.stand.Config)
	if h.noteFailure(err) {
		return
	}
	if config == nil {
		config = &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: h.stand.Config}}
	}
	h.config = config
	for _, name := range config.Spec.Clusters {
		if h.connectionProblem(ctx, name) == "" {
			h.stand.Connected = append(h.stand.Connected, name)
		}
	}
}

// readState reads how far the workload is, except its gate.
func (h *hubExplainer) readState(ctx context.Context, wl *kueue.Workload) {
	e := &h.report.Explanation
	e.Workload, e.Nominated = client.ObjectKeyFromObject(wl).String(), wl.Status.NominatedClusterNames
	e.Cluster = h.checks.PlacedCluster(wl)
	var err error
	if e.Dispatch, err = dispatch.Decode(wl.Annotations); err != nil {
		e.Problem = err.Error()
	}
	h.readMultiKueue(ctx)
	h.stand.Workload, h.stand.Cluster, h.stand.Dispatch = wl, e.Cluster, e.Dispatch
}

// explain fills in the report's explanation as far as the hub's objects allow. reason is why
// the operator does not explain the workload.
func (h *hubExplainer) explain(ctx context.Context, wl *kueue.Workload, now time.Time, reason string) {
	e := &h.report.Explanation
	h.readState(ctx, wl)
	scores, err := hubclient.ReadScores(ctx, h.client)
	h.noteFailure(err)
	if g := h.readGate(ctx); g != nil {
		h.explainClusters(ctx, wl, g, scores, now)
	}
	wait := h.stand.Wait(now)
	e.WaitsFor, e.Next = wait.For, wait.Next
	if e.Cluster == "" && !kueuestate.IsFinished(wl) {
		h.report.NotShown = append(h.report.NotShown, "each candidate's room, promised devices and age of samples: "+reason)
	}
}

// explainClusters explains the candidates of the gate's Placement, and then the
// clusters that have scores but are not among its decisions. It applies only those
// rules of the gate that need no metrics.
func (h *hubExplainer) explainClusters(ctx context.Context, wl *kueue.Workload, g *v1alpha1.PlacementGate, scores map[string]map[string]gate.Score, now time.Time) {
	e, rules := &h.report.Explanation, gate.RulesOf(&g.Spec)
	e.Facts = shape.FactsOf(wl, shape.OptionsOf(&g.Spec, h.flavors(ctx)))
	candidates, known := h.readCandidates(ctx, g, scores)
	// Without pod sets, Explain skips the rules about room and sample age, which only
	// the operator can apply.
	facts := e.Facts
	facts.PodSets = nil
	_, e.Clusters = gate.Explain(facts, candidates, gate.Fleet{}, ledger.View{}, rules, 0, now)
	decided := map[string]bool{}
	for i := range e.Clusters {
		decided[e.Clusters[i].Cluster] = true
		if e.Clusters[i].Rejection == gate.RejectNone {
			e.Clusters[i].Why = "is eligible"
		}
	}
	if known && len(candidates) == 0 {
		e.Problem = "Placement " + rules.Placement + " has decided no cluster"
	}
	for _, name := range slices.Sorted(maps.Keys(scores)) {
		if !decided[name] {
			why := "is not among the decisions of Placement " + rules.Placement
			e.Clusters = append(e.Clusters, gate.ClusterExplanation{
				Verdict: gate.Verdict{Cluster: name, Rejection: gate.RejectUndecided, Detail: rules.Placement, Age: -1}, Why: why, Scores: scores[name],
			})
		}
	}
}

// readCandidates returns the clusters that the gate's Placement decided, by name.
// known is false if the decisions can't be read.
func (h *hubExplainer) readCandidates(ctx context.Context, g *v1alpha1.PlacementGate, scores map[string]map[string]gate.Score) (candidates []gate.Candidate, known bool) {
	placement := client.ObjectKey{Namespace: g.Spec.PlacementRef.Namespace, Name: g.Spec.PlacementRef.Name}
	names, err := hubstate.DecidedClusters(ctx, h.client, placement)
	if h.noteFailure(err) {
		return nil, false
	}
	slices.Sort(names)
	for _, name := range names {
		c := gate.Candidate{Name: name, Scores: scores[name]}
		if problem := h.connectionProblem(ctx, name); problem != "" {
			c.Exclude(gate.RejectDisconnected, problem)
		}
		candidates = append(candidates, c)
	}
	return candidates, true
}

// readGate reads the PlacementGate of the workload's check and its period, and reports why the gate is
// not ready. It returns nil if there is no gate, or if the gate can't be read.
func (h *hubExplainer) readGate(ctx context.Context) *v1alpha1.PlacementGate {
	if h.report.Gate == "" {
		return nil
	}
	g := &v1alpha1.PlacementGate{}
	found, err := hubstate.Find(ctx, h.client, client.ObjectKey{Name: h.report.Gate}, g)
	switch {
	case h.noteFailure(err):
		return nil
	case !found:
		h.report.Problem = "PlacementGate " + h.report.Gate + " does not exist"
		return nil
	}
	h.stand.Period = gate.PeriodOf(&g.Spec)
	if c := apimeta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		h.report.Problem = fmt.Sprintf("PlacementGate %s is not ready: %s", g.Name, c.Message)
	}
	return g
}

// connectionProblem returns why MultiKueue can't send a workload to the cluster. It is
// empty if MultiKueue can, or if the state of the connection is unknown.
func (h *hubExplainer) connectionProblem(ctx context.Context, name string) string {
	if h.config == nil {
		return ""
	}
	cluster, err := hubstate.MultiKueueCluster(ctx, h.client, name)
	if h.noteFailure(err) {
		return ""
	}
	return kueuestate.DisconnectedReason(h.config, name, cluster)
}

// flavors returns a function that reads a ResourceFlavor.
func (h *hubExplainer) flavors(ctx context.Context) func(string) kueue.ResourceFlavorSpec {
	return func(name string) kueue.ResourceFlavorSpec {
		flavor := &kueue.ResourceFlavor{}
		found, err := hubstate.Find(ctx, h.client, client.ObjectKey{Name: name}, flavor)
		if err == nil && !found {
			err = fmt.Errorf("ResourceFlavor %s does not exist", name)
		}
		h.noteFailure(err)
		return flavor.Spec
	}
}

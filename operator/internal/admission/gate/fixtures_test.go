package gate

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const h100 = "NVIDIA-H100-80GB-HBM3"

// before returns the time that many seconds before t0.
func before(seconds int) time.Time { return t0.Add(-time.Duration(seconds) * time.Second) }

// job returns a workload of pods pods with devices H100s each.
func job(uid string, devices, pods int64) shape.Facts {
	return shape.Facts{UID: uid, Namespace: "team-a", Name: uid, Queue: "gpu",
		PodSets: []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: devices, Pods: pods}}}
}

// remote returns a workload that MultiKueue copies to a worker.
func remote(f shape.Facts) shape.Facts {
	f.Remote, f.ClusterQueue = true, "cq"
	return f
}

// preempting returns a remote workload whose queue may preempt others.
func preempting(f shape.Facts) shape.Facts {
	f = remote(f)
	f.Preempts = true
	return f
}

func withUnmeasured(f shape.Facts, names ...string) shape.Facts {
	f.Unmeasured = names
	return f
}

// cluster returns a candidate with samples 5 s old: fit pods fit, free devices are free,
// largest of these on one node, capacity in total.
func cluster(name string, fit, free, largest, capacity float64) Candidate {
	return Candidate{Name: name, SampledAt: before(5),
		Shapes: []ShapeMetrics{{Fit: Known(fit), Headroom: Known(free), Largest: Known(largest), Capacity: Known(capacity)}}}
}

func sampledBefore(c Candidate, seconds int) Candidate {
	c.SampledAt = before(seconds)
	return c
}

func withUnusable(c Candidate, reason string) Candidate {
	c.Exclude(RejectDisconnected, reason)
	return c
}

func withRequirements(c Candidate, requirements ...RequirementResult) Candidate {
	c.Requirements = requirements
	return c
}

func withQuota(c Candidate, devices float64) Candidate {
	c.Shapes[0].Quota = Known(devices)
	return c
}

func withLargest(c Candidate, n Number) Candidate {
	c.Shapes[0].Largest = n
	return c
}

func withFailingQuota(c Candidate) Candidate {
	c.Shapes[0].QuotaFailed = true
	return c
}

func withoutQueue(c Candidate) Candidate {
	c.Shapes[0].QueueMissing = true
	return c
}

// withScore sets the score fleet/total, valid for one more minute.
func withScore(c Candidate, total int32) Candidate {
	c.Scores = map[string]Score{"fleet/total": {Value: total, ValidUntil: t0.Add(time.Minute)}}
	return c
}

func rules() Rules {
	return Rules{Placement: "plimsoll-system/gpu", TierPoints: 20, MaxSampleAge: 120 * time.Second, UnknownAfter: 300 * time.Second, OnStale: v1alpha1.StaleClosed}
}

func openRules() Rules { return openly(rules()) }

func openly(r Rules) Rules {
	r.OnStale = v1alpha1.StaleOpen
	return r
}

// scoreRules prefer the score fleet/total and, with a minimum, require the score too.
func scoreRules(minimum *int32) Rules {
	r := rules()
	r.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "total", Use: v1alpha1.UsePrefer}}
	if minimum != nil {
		r.Scores = append(r.Scores, v1alpha1.GateScore{ResourceName: "fleet", ScoreName: "total", Use: v1alpha1.UseRequire, Minimum: minimum})
	}
	return r
}

// requiredScore are rules that require the score fleet/total with the default minimum.
func requiredScore() Rules {
	r := rules()
	r.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "total", Use: v1alpha1.UseRequire}}
	return r
}

// evaluated returns the result of a requirement at t0. NaN means an empty result.
func evaluated(requirement string, value float64) RequirementResult {
	return evaluatedAt(requirement, value, t0)
}

// absentMeets returns the result of a requirement that an empty result meets.
func absentMeets(c RequirementResult) RequirementResult {
	c.AbsentMeets = true
	return c
}

func evaluatedAt(requirement string, value float64, at time.Time) RequirementResult {
	return RequirementResult{Name: requirement, Number: Number{Value: value, Known: !math.IsNaN(value)}, EvaluatedAt: at}
}

// partial returns a result that has been partial for some seconds.
func partial(requirement string, seconds int) RequirementResult {
	return RequirementResult{Name: requirement, EvaluatedAt: before(seconds), Partial: true}
}

func fleetWith(requirements ...RequirementResult) Fleet { return Fleet{Requirements: requirements} }

// decideCase is a decision with an empty ledger. The default workload is one pod with
// eight devices.
type decideCase struct {
	name       string
	facts      shape.Facts
	candidates []Candidate
	fleet      Fleet
	rules      Rules
	state      State
	reason     string
	message    string
	order      []string
}

func runDecideCases(t *testing.T, cases []decideCase) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if tc.facts.UID == "" {
				tc.facts = job("a", 8, 1)
			}
			if tc.rules.Placement == "" {
				tc.rules = rules()
			}
			d := Decide(tc.facts, tc.candidates, tc.fleet, ledger.View{}, tc.rules, 1, t0)
			if d.State != tc.state || d.Reason != tc.reason || d.Message != tc.message {
				t.Errorf("got %s %s %q\nwant %s %s %q", d.State, d.Reason, d.Message, tc.state, tc.reason, tc.message)
			}
			if diff := cmp.Diff(tc.order, d.Order); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// snapshot returns a workload with quota and Pending checks of a gate and of MultiKueue.
func snapshot() Snapshot {
	wl := &kueue.Workload{}
	wl.Spec.Active = ptr.To(true) // Kueue's default
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpu"}
	setCondition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "reserved")
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStatePending}, {Name: "multikueue", State: kueue.CheckStatePending}}
	return Snapshot{Workload: wl, Own: []string{"plimsoll"}, MultiKueue: "multikueue", Config: "gpu", Connected: []string{"cluster1"}}
}

func setCondition(wl *kueue.Workload, condition string, status metav1.ConditionStatus, message string) {
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: condition, Status: status, Message: message})
}

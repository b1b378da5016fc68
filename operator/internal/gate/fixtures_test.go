package gate

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const h100 = "NVIDIA-H100-80GB-HBM3"

func job(uid string, devices, pods int64) shape.Facts {
	return shape.Facts{UID: uid, Namespace: "team-a", Name: uid, Queue: "gpu",
		PodSets: []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: devices, Pods: pods}}}
}

// cluster with room for fit pods, free devices in all, largest on one node, of total.
func cluster(name string, fit, free, largest, total float64) Candidate {
	return Candidate{Name: name, SampledAt: t0.Add(-5 * time.Second),
		Shapes: []ShapeMetrics{{Fit: Known(fit), Headroom: Known(free), Largest: Known(largest), Capacity: Known(total)}}}
}

func remote(f shape.Facts) shape.Facts {
	f.Remote, f.ClusterQueue = true, "cq"
	return f
}

func preempting(f shape.Facts) shape.Facts {
	f = remote(f)
	f.Preempts = true
	return f
}

func alsoAsking(f shape.Facts, names ...string) shape.Facts {
	f.Unmeasured = names
	return f
}

func withQuota(c Candidate, devices float64) Candidate {
	c.Shapes[0].Quota = Known(devices)
	return c
}

func withLargest(c Candidate, n Number) Candidate {
	c.Shapes[0].Largest = n
	return c
}

func quotaUnanswered(c Candidate) Candidate {
	c.Shapes[0].QuotaFailed = true
	return c
}

func noQuota(c Candidate) Candidate {
	c.Shapes[0].QueueMissing = true
	return c
}

func rules() Rules {
	return Rules{Placement: "plimsoll-system/gpu", TierPoints: 20, MaxSampleAge: 120 * time.Second, UnknownAfter: 300 * time.Second, OnStale: v1alpha1.StaleClosed}
}

// says what was answered to a condition just now; NaN = an empty answer.
func says(condition string, value float64) ConditionResult {
	return ConditionResult{Name: condition, Number: Number{Value: value, Known: !math.IsNaN(value)}, EvaluatedAt: t0}
}

func sometime(condition string, value float64, at time.Time) ConditionResult {
	c := says(condition, value)
	c.EvaluatedAt = at
	return c
}

func fleetSays(conditions ...ConditionResult) Fleet { return Fleet{Conditions: conditions} }

func scored(c Candidate, total int32) Candidate {
	c.Scores = map[string]Score{"fleet/total": {Value: total, ValidUntil: t0.Add(time.Minute)}}
	return c
}

func prefer(minimum *int32) []v1alpha1.GatePolicy {
	p := []v1alpha1.GatePolicy{{Policy: "fleet", Score: "total", Use: v1alpha1.UsePrefer}}
	if minimum != nil {
		p = append(p, v1alpha1.GatePolicy{Policy: "fleet", Score: "total", Use: v1alpha1.UseRequire, Minimum: minimum})
	}
	return p
}

// waiting workload that holds quota, with the gate's and MultiKueue's check Pending.
func waiting() Snapshot {
	wl := &kueue.Workload{}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpu"}
	holds(wl, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "reserved")
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStatePending}, {Name: "multikueue", State: kueue.CheckStatePending}}
	return Snapshot{Workload: wl, Own: []string{"plimsoll"}, MultiKueue: "multikueue", Config: "gpu", Connected: []string{"cluster1"}}
}

func holds(wl *kueue.Workload, condition string, status metav1.ConditionStatus, message string) {
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: condition, Status: status, Message: message})
}

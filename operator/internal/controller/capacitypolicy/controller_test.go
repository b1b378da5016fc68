package capacitypolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// usable is the query for usable devices as the source receives it.
const usable = "sum by (cluster) (usable)"

// hub is a hub with the policy "gpus", a source whose responses the test sets, and a clock.
type hub struct {
	client.Client
	t   *testing.T
	r   *Reconciler
	now time.Time
	// responses by expression; an expression without one fails.
	responses map[string]query.Result
}

func newHub(t *testing.T, spec func(*v1alpha1.CapacityPolicySpec), objects ...client.Object) *hub {
	t.Helper()
	return newHubWith(t, interceptor.Funcs{}, spec, objects...)
}

// newHubWith is newHub with functions that intercept the calls of the client.
func newHubWith(t *testing.T, calls interceptor.Funcs, spec func(*v1alpha1.CapacityPolicySpec), objects ...client.Object) *hub {
	t.Helper()
	policy := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpus", Generation: 1}, Spec: v1alpha1.CapacityPolicySpec{
		SourceRef: v1alpha1.LocalReference{Name: "thanos"}, CohortName: "gpu-fleet", Mode: v1alpha1.ModeEnforce,
		Quotas: []v1alpha1.MeasuredQuota{{Flavor: "h100", Resource: "nvidia.com/gpu", Query: "sum by ($cluster_label) (usable)", UnhealthyQuery: "broken"}},
	}}
	if spec != nil {
		spec(&policy.Spec)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clusterv1.Install, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects = append(objects, policy, managedCluster("c1", true), managedCluster("c2", true))
	h := &hub{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(policy).WithInterceptorFuncs(calls).Build(),
		t:      t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), responses: map[string]query.Result{},
	}
	sources := &query.Sources{}
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Match: "Name"}, query.QuerierFunc(h.query))
	h.r = &Reconciler{client: h.Client, recorder: events.NewFakeRecorder(100), sources: sources, now: func() time.Time { return h.now }}
	h.devices(usable, "c1", 8, "c2", 16)
	h.devices("broken")
	return h
}

func managedCluster(name string, connected bool) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	status := metav1.ConditionUnknown
	if connected {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable, Status: status, Reason: "Test"})
	return c
}

// clusterQueue has a nominal quota and reserved devices of h100.
func clusterQueue(name, cohort string, nominal, reserved int64) *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(cohort)}}
	q.Spec.ResourceGroups = resourceGroups(nominal)
	q.Status.FlavorsReservation = []kueue.FlavorUsage{{Name: "h100", Resources: []kueue.ResourceUsage{{Name: "nvidia.com/gpu", Total: *resource.NewQuantity(reserved, resource.DecimalSI)}}}}
	return q
}

func resourceGroups(nominal int64) []kueue.ResourceGroup {
	return []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"nvidia.com/gpu"}, Flavors: []kueue.FlavorQuotas{
		{Name: "h100", Resources: []kueue.ResourceQuota{{Name: "nvidia.com/gpu", NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI)}}},
	}}}
}

func cohort(name, parent, owner string, nominal int64) *kueue.Cohort {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent), ResourceGroups: resourceGroups(nominal)}}
	if owner != "" {
		c.Labels = map[string]string{v1alpha1.CapacityPolicyLabel: owner}
	}
	return c
}

func (h *hub) query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	if result, ok := h.responses[expr]; ok {
		return result, nil
	}
	return query.Result{}, &query.Error{Reason: query.ReasonUnreachable, Message: "connection refused"}
}

// devices sets the response to an expression: pairs of cluster and number.
func (h *hub) devices(expr string, pairs ...any) {
	result := query.Result{}
	for i := 0; i < len(pairs); i += 2 {
		result.Samples = append(result.Samples, query.Sample{Labels: map[string]string{"cluster": pairs[i].(string)}, Value: float64(pairs[i+1].(int))})
	}
	h.responses[expr] = result
}

// round runs a round, a minute after the last one, and returns the policy.
func (h *hub) round() *v1alpha1.CapacityPolicy {
	h.t.Helper()
	h.now = h.now.Add(time.Minute)
	if _, err := h.r.Reconcile(h.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpus"}}); err != nil {
		h.t.Fatal(err)
	}
	policy := &v1alpha1.CapacityPolicy{}
	if err := h.Get(h.t.Context(), client.ObjectKey{Name: "gpus"}, policy); err != nil {
		h.t.Fatal(err)
	}
	return policy
}

// cohortQuota returns the nominal quota of the Cohort, or -1 if it does not exist.
func (h *hub) cohortQuota() int64 {
	h.t.Helper()
	c := &kueue.Cohort{}
	if err := h.Get(h.t.Context(), client.ObjectKey{Name: "gpu-fleet"}, c); client.IgnoreNotFound(err) != nil {
		h.t.Fatal(err)
	} else if err != nil {
		return -1
	}
	return sumQuotas(c.Spec.ResourceGroups)[quotaKey{"h100", "nvidia.com/gpu"}]
}

// describe returns a condition as "status reason: message".
func describe(policy *v1alpha1.CapacityPolicy, conditionType string) string {
	c := meta.FindStatusCondition(policy.Status.Conditions, conditionType)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

func TestPolicyCreatesAndUpdatesItsCohort(t *testing.T) {
	h := newHub(t, nil, clusterQueue("team-a", "gpu-fleet", 4, 3), clusterQueue("other", "another-cohort", 100, 100), cohort("sub", "gpu-fleet", "", 2))
	policy := h.round()
	if got := h.cohortQuota(); got != 18 { // 24 measured, less 4 of the queue and 2 of the Cohort below
		t.Errorf("quota of the Cohort: %d", got)
	}
	if q := policy.Status.Quotas[0]; *q.Quota != 24 || q.Measured != 24 || q.Reserved != 3 || q.QueueQuota != 6 {
		t.Errorf("status %+v", q)
	}
	for _, c := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionApplied, v1alpha1.ConditionMeasured, v1alpha1.ConditionQueriesValid} {
		if !meta.IsStatusConditionTrue(policy.Status.Conditions, c) {
			t.Errorf("%s is %s", c, describe(policy, c))
		}
	}
	h.devices(usable, "c1", 6, "c2", 16)
	h.devices("broken", "c1", 2)
	h.round()
	if got := h.cohortQuota(); got != 16 {
		t.Errorf("after two devices broke: %d", got)
	}
	h.devices(usable, "c1", 8, "c2", 16)
	h.devices("broken")
	h.round()
	if got := h.cohortQuota(); got != 16 {
		t.Errorf("after one round of the repaired devices: %d", got)
	}
	h.round()
	if got := h.cohortQuota(); got != 18 {
		t.Errorf("after two rounds of the repaired devices: %d", got)
	}
}

func TestPolicyKeepsTheQuota(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fault  func(*hub)
		reason string
		text   string
	}{
		{"the source fails", func(h *hub) { delete(h.responses, usable) }, "SourceFailed", "quotas[h100, nvidia.com/gpu].query: Unreachable: connection refused"},
		{"stores are missing", func(h *hub) {
			h.responses[usable] = query.Result{Partial: true, PartialReason: "no store matched"}
		}, "SourceFailed", "no store matched"},
		{"no cluster matches", func(h *hub) { h.devices(usable, "elsewhere", 8) }, "SourceFailed", "no connected cluster"},
		{"an empty response", func(h *hub) { h.devices(usable) }, "SourceFailed", "no connected cluster"},
		{"the source is deleted", func(h *hub) { h.r.sources.Delete("thanos") }, "SourceFailed", `MetricsSource "thanos": not found`},
		{"the source can't be used", func(h *hub) { h.r.sources.SetUnusable(query.SourceInfo{Name: "thanos"}, errors.New("no Secret")) }, "SourceFailed", "no Secret"},
		{"a cluster is silent", func(h *hub) { h.devices(usable, "c1", 8) }, "Kept", "c2 (NoSample, h100)"},
		{"a cluster is disconnected", func(h *hub) {
			c := managedCluster("c2", false)
			c.ResourceVersion = ""
			if err := errors.Join(h.Delete(context.Background(), managedCluster("c2", true)), h.Create(context.Background(), c)); err != nil {
				h.t.Fatal(err)
			}
		}, "Kept", "c2 (Disconnected, h100)"},
		{"the endpoint of a cluster fails", func(h *hub) {
			h.devices(usable, "c1", 8)
			h.responses[usable] = query.Result{Samples: h.responses[usable].Samples, Failed: map[string]string{"c2": "timeout"}}
		}, "Kept", "c2 (QueryFailed, h100)"},
		{"two samples for a cluster", func(h *hub) { h.devices(usable, "c1", 8, "c2", 8, "c2", 8) }, "Kept", "c2 (SeveralSamples, h100)"},
		{"a negative number", func(h *hub) { h.devices(usable, "c1", 8, "c2", -1) }, "Kept", "c2 (NotANumber, h100)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, func(s *v1alpha1.CapacityPolicySpec) { s.Advanced.LowerAfterSeconds = new(int32(0)) })
			h.round()
			tc.fault(h)
			policy := h.round()
			if got := h.cohortQuota(); got != 24 {
				t.Errorf("quota %d", got)
			}
			if got := describe(policy, v1alpha1.ConditionMeasured); !strings.HasPrefix(got, "False "+tc.reason) || !strings.Contains(got, tc.text) {
				t.Errorf("Measured is %s", got)
			}
		})
	}
}

func TestPolicyRefusesToWrite(t *testing.T) {
	automated := clusterQueue("team-a", "gpu-fleet", 0, 0)
	meta.SetStatusCondition(&automated.Status.Conditions, metav1.Condition{Type: kueue.MultiKueueManagerQuotaAutomation, Status: metav1.ConditionTrue, Reason: "Test"})
	for _, tc := range []struct {
		name    string
		spec    func(*v1alpha1.CapacityPolicySpec)
		objects []client.Object
		reason  string
		want    int64
	}{
		{"shadow", func(s *v1alpha1.CapacityPolicySpec) { s.Mode = v1alpha1.ModeShadow }, nil, "Shadow", -1},
		{"a Cohort of a user", nil, []client.Object{cohort("gpu-fleet", "", "", 3)}, "NotOurs", 3},
		{"a Cohort of another policy", nil, []client.Object{cohort("gpu-fleet", "", "other", 3)}, "NotOurs", 3},
		{"Kueue writes the quota", nil, []client.Object{automated}, "QuotaAutomation", -1},
		{"a query does not parse", func(s *v1alpha1.CapacityPolicySpec) { s.Quotas[0].Query = "sum(" }, nil, "NotMeasured", -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, tc.spec, tc.objects...)
			h.round()
			policy := h.round()
			if got := h.cohortQuota(); got != tc.want {
				t.Errorf("quota %d, want %d", got, tc.want)
			}
			if got := describe(policy, v1alpha1.ConditionApplied); !strings.HasPrefix(got, "False "+tc.reason+": ") {
				t.Errorf("Applied is %s", got)
			}
			if got := describe(policy, v1alpha1.ConditionReady); strings.HasPrefix(got, "True") != (tc.reason == "Shadow") {
				t.Errorf("Ready is %s", got)
			}
		})
	}
}

// Where Kueue's quota orchestration sets the effective quota, that of the spec is only a proportion. The types of Kueue
// do not have the field yet, so that the API server's answer has it only here.
func TestPolicyRefusesOrchestratedQuota(t *testing.T) {
	for _, tc := range []struct{ name, object, want string }{
		{"the Cohort", "gpu-fleet", "False QuotaAutomation: Cohort gpu-fleet in Cohort gpu-fleet has status.effectiveQuotas.orchestratorRef"},
		{"a Cohort below", "below", "False QuotaAutomation: Cohort below in Cohort gpu-fleet has"},
		{"a ClusterQueue", "team-a", "False QuotaAutomation: ClusterQueue team-a in Cohort gpu-fleet has"},
		{"a ClusterQueue elsewhere", "team-b", "True Applied: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHubWith(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, list, opts...)
				if u, ok := list.(*unstructured.UnstructuredList); ok {
					for i := range u.Items {
						if u.Items[i].GetName() == tc.object {
							u.Items[i].Object["status"] = map[string]any{"effectiveQuotas": map[string]any{"orchestratorRef": map[string]any{"name": "nodes"}}}
						}
					}
				}
				return err
			}}, nil, cohort("gpu-fleet", "", "gpus", 3), cohort("below", "gpu-fleet", "", 0), clusterQueue("team-a", "gpu-fleet", 0, 0), clusterQueue("team-b", "other", 0, 0))
			h.round()
			if got := describe(h.round(), v1alpha1.ConditionApplied); !strings.HasPrefix(got, tc.want) {
				t.Errorf("Applied is %s, want %s", got, tc.want)
			}
		})
	}
}

func TestFreshnessLimitsTheAge(t *testing.T) {
	for name, age := range map[string]int{"too old": 61, "from the future": -61} {
		t.Run(name, func(t *testing.T) { testFreshness(t, age) })
	}
}

// testFreshness: samples of age -60 to 60 are fresh, and those of the given age are not.
func testFreshness(t *testing.T, stale int) {
	h := newHub(t, func(s *v1alpha1.CapacityPolicySpec) {
		s.Freshness = &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: 60}
	})
	h.devices("age", "c1", -60, "c2", 60)
	h.round()
	h.devices("age", "c1", -60, "c2", stale)
	policy := h.round()
	want := []v1alpha1.ClusterCapacity{
		{Name: "c1", Devices: 8, Unhealthy: new(int64(0)), State: v1alpha1.CapacityFresh},
		{Name: "c2", Devices: 16, Unhealthy: new(int64(0)), State: v1alpha1.CapacityKept, Reason: "Stale", Since: &metav1.Time{Time: h.now}},
	}
	if diff := cmp.Diff(want, policy.Status.Quotas[0].Clusters); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.devices("age", "c1", -60)
	h.responses["age"] = query.Result{Samples: h.responses["age"].Samples, Failed: map[string]string{"c2": "timeout"}}
	if c := h.round().Status.Quotas[0].Clusters[1]; c.Reason != "QueryFailed" {
		t.Errorf("after the age of c2 could not be queried: %+v", c)
	}
	delete(h.responses, "age")
	if got := describe(h.round(), v1alpha1.ConditionMeasured); !strings.Contains(got, "freshness.query: Unreachable: connection refused") {
		t.Errorf("Measured is %s", got)
	}
}

func TestDeletedPolicyLeavesItsCohort(t *testing.T) {
	h := newHub(t, nil)
	policy := h.round()
	if err := h.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if _, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpus"}}); err != nil {
		t.Fatal(err)
	}
	if got := h.cohortQuota(); got != 24 {
		t.Errorf("quota %d", got)
	}
}

// A Cohort that can't be written is a condition, and the state of the round is kept.
func TestFailedWriteIsReported(t *testing.T) {
	refused := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if _, ok := obj.(*kueue.Cohort); ok {
			return errors.New("the webhook refuses it")
		}
		return c.Create(ctx, obj, opts...)
	}}
	h := newHubWith(t, refused, nil)
	if result, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpus"}}); err != nil || result.RequeueAfter != 30*time.Second {
		t.Errorf("got %+v and error %v, want the next round after 30 s", result, err)
	}
	policy := &v1alpha1.CapacityPolicy{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "gpus"}, policy); err != nil {
		t.Fatal(err)
	}
	if got := describe(policy, v1alpha1.ConditionReady); !strings.HasPrefix(got, "False WriteFailed: ") || !strings.Contains(got, "the webhook refuses it") {
		t.Errorf("Ready is %s", got)
	}
	if len(policy.Status.Quotas) != 1 || *policy.Status.Quotas[0].Quota != 24 {
		t.Errorf("quotas %+v", policy.Status.Quotas)
	}
}

// Rounds that follow each other faster than the period, such as after changes of the policy, agree on a
// raise only once.
func TestEarlyRoundsDoNotCountForARaise(t *testing.T) {
	h := newHub(t, nil)
	h.round()
	h.devices(usable, "c1", 16, "c2", 16)
	h.round()
	for range 5 {
		h.now = h.now.Add(5*time.Second - time.Minute)
		h.round() // adds a minute
	}
	if got := h.cohortQuota(); got != 24 {
		t.Errorf("quota %d after early rounds, want 24", got)
	}
	h.now = h.now.Add(-30 * time.Second)
	h.round()
	if got := h.cohortQuota(); got != 32 {
		t.Errorf("quota %d after half a period, want 32", got)
	}
}

// A policy that is deleted while its round lasts creates no Cohort.
func TestPolicyDeletedDuringARound(t *testing.T) {
	h := newHub(t, nil)
	sources := &query.Sources{}
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Match: "Name"}, query.QuerierFunc(func(ctx context.Context, expr string, at time.Time) (query.Result, error) {
		if err := h.Delete(ctx, &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}}); client.IgnoreNotFound(err) != nil {
			return query.Result{}, err
		}
		return h.query(ctx, expr, at)
	}))
	h.r.sources = sources
	if _, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpus"}}); err != nil {
		t.Fatal(err)
	}
	if got := h.cohortQuota(); got != -1 {
		t.Errorf("quota %d", got)
	}
}

// Nothing is known of the time in which no operator ran: a kept cluster is kept again.
func TestGapBetweenRoundsRestartsKeepTimes(t *testing.T) {
	h := newHub(t, func(s *v1alpha1.CapacityPolicySpec) { s.Advanced.LowerAfterSeconds = new(int32(0)) })
	h.round()
	h.devices(usable, "c1", 8)
	h.round()
	h.now = h.now.Add(time.Hour)
	policy := h.round()
	if got := h.cohortQuota(); got != 24 {
		t.Errorf("quota %d", got)
	}
	if c := policy.Status.Quotas[0].Clusters[1]; c.State != v1alpha1.CapacityKept || !c.Since.Time.Equal(h.now) {
		t.Errorf("after the gap: %+v", c)
	}
}

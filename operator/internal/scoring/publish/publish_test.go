package publish

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const valid = 90 * time.Second

func want(value int32) *Desired {
	return &Desired{
		Cluster: "c1", Scores: []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "a", Value: value}},
		ValidUntil: now.Add(valid),
		Conditions: []metav1.Condition{{Type: DataFresh, Status: metav1.ConditionTrue, Reason: ReasonFresh, Message: "m"}},
	}
}

func live(value int32, validFor time.Duration) *clusterv1alpha1.AddOnPlacementScore {
	until := metav1.NewTime(now.Add(validFor))
	return &clusterv1alpha1.AddOnPlacementScore{
		ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: string(FieldOwner), Operation: metav1.ManagedFieldsOperationApply, Subresource: "status",
			FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:scores":{"k:{\"name\":\"a\"}":{".":{}},"k:{\"name\":\"dropped\"}":{".":{}}}}}`),
		}}},
		Status: clusterv1alpha1.AddOnPlacementScoreStatus{
			Scores: []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "a", Value: value}}, ValidUntil: &until,
			Conditions: []metav1.Condition{{Type: DataFresh, Status: metav1.ConditionTrue, Reason: ReasonFresh, Message: "m"}},
		},
	}
}

func TestDiff(t *testing.T) {
	kept := want(5)
	kept.Conditions[0].Status, kept.Conditions[0].Reason = metav1.ConditionFalse, ReasonKept
	worst := want(5)
	worst.Conditions = append(worst.Conditions, metav1.Condition{Type: "score.plimsoll.dev/a", Status: metav1.ConditionFalse})
	fresh := live(5, valid)
	fresh.Status.Conditions = append(fresh.Status.Conditions, worst.Conditions[1])
	beside := live(5, valid)
	beside.Status.Scores = append(beside.Status.Scores, clusterv1alpha1.AddOnPlacementScoreItem{Name: "cost"})
	dropped := live(5, valid)
	dropped.Status.Scores = append(dropped.Status.Scores, clusterv1alpha1.AddOnPlacementScoreItem{Name: "dropped"})
	foreign := live(5, valid)
	foreign.Status.Conditions = append(foreign.Status.Conditions, metav1.Condition{Type: "Audited", Status: metav1.ConditionFalse})
	counted, recounted := want(5), live(5, valid)
	counted.Series = map[string]int64{"q": 8}
	recounted.Annotations = map[string]string{SeriesAnnotation: `{"q":8}`}
	damaged := live(5, valid)
	damaged.Annotations = map[string]string{SeriesAnnotation: `{"q":`}
	short := want(5)
	short.ValidUntil = now.Add(10 * time.Second)
	more := want(5)
	more.Scores = append(more.Scores, clusterv1alpha1.AddOnPlacementScoreItem{Name: "b"})
	for _, tc := range []struct {
		name   string
		live   *clusterv1alpha1.AddOnPlacementScore
		want   *Desired
		reason WriteReason
	}{
		{"unchanged", live(5, valid), want(5), ""},
		{"changed value", live(6, valid), want(5), "score"},
		{"additional score", live(5, valid), more, "score"},
		{"changed condition", live(5, valid), kept, "condition"},
		{"a score is not fresh any more", live(5, valid), worst, "condition"},
		{"a score is fresh again", fresh, want(5), "condition"},
		{"a condition of another field manager", foreign, want(5), ""},
		{"less than a third of the validity has passed", live(5, 61*time.Second), want(5), ""},
		{"a third of the validity has passed", live(5, 60*time.Second), want(5), "validity"},
		{"expired", live(5, -time.Second), want(5), "validity"},
		{"a keep time that ends sooner", live(5, valid), short, "validity"},
		{"an unchanged keep time", live(5, 10*time.Second), short, ""},
		{"never written", &clusterv1alpha1.AddOnPlacementScore{}, want(5), "score"},
		{"a score of another field manager", beside, want(5), ""},
		{"a score that the policy dropped", dropped, want(5), "score"},
		{"counted for the first time", live(5, valid), counted, "series"},
		{"the same count", recounted, counted, ""},
		{"another component damaged the counts", damaged, counted, "series"},
		{"counts of a source that is unknown now", recounted, want(5), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := diff(tc.live, tc.want, now, valid); got != tc.reason {
				t.Errorf("got %q, want %q", got, tc.reason)
			}
		})
	}
}

// evaluate runs rounds of a policy with the scores a and b for one cluster, 200 seconds
// apart.
func evaluate(t *testing.T, inputs ...[2]score.Input) *score.Result {
	t.Helper()
	spec := &v1alpha1.ScoringPolicySpec{Total: &v1alpha1.TotalSpec{}}
	for _, name := range []string{"a", "b"} {
		spec.Scores = append(spec.Scores, v1alpha1.ScoreSpec{Name: name, Normalize: v1alpha1.Normalize{Type: v1alpha1.NormalizeIdentity}})
	}
	policy, err := score.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	var last *score.Result
	for i, in := range inputs {
		last = score.Evaluate(policy, score.Samples{
			Clusters: []string{"c1"}, Scores: [][]score.Input{{in[0]}, {in[1]}},
		}, last, now.Add(time.Duration(i)*200*time.Second))
	}
	return last
}

func TestDesire(t *testing.T) {
	good, stale, absent := score.Input{Value: 40}, score.Input{Outcome: score.Stale}, score.Input{Outcome: score.Absent}
	for _, tc := range []struct {
		name    string
		in      [][2]score.Input
		scores  string
		until   time.Duration // after the last round
		reason  string
		message string
	}{
		{"fresh", [][2]score.Input{{good, good}}, "a=40 b=40 total=40", valid, ReasonFresh, "every score has a fresh value"},
		{"kept", [][2]score.Input{{good, good}, {stale, good}}, "a=40 b=40 total=40", valid, ReasonKept,
			"a: Stale since 2026-01-02T03:07:25Z, kept until 2026-01-02T03:09:05Z"},
		{"stale after the keep time", [][2]score.Input{{good, good}, {stale, good}, {stale, good}}, "a=-100 b=40 total=-100", valid, ReasonStale,
			"a: Stale since 2026-01-02T03:07:25Z"},
		{"missing", [][2]score.Input{{absent, good}}, "a=-100 b=40 total=-100", valid, ReasonMissing, "a: Absent since 2026-01-02T03:04:05Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := evaluate(t, tc.in...)
			d := Desire(r, true, valid)[0]
			var scores string
			for i, s := range d.Scores {
				if i > 0 {
					scores += " "
				}
				scores += fmt.Sprintf("%s=%d", s.Name, s.Value)
			}
			got := []any{scores, d.ValidUntil.Sub(r.Time.Time()), d.Conditions[0].Reason, d.Conditions[0].Message}
			if diff := cmp.Diff([]any{tc.scores, tc.until, tc.reason, tc.message}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestKeepingKeepsTheValidity: the end of a keep time must not expire the fresh score b.
func TestKeepingKeepsTheValidity(t *testing.T) {
	r := evaluate(t, [2]score.Input{{Value: 1}, {Value: 1}}, [2]score.Input{{Outcome: score.NaN}, {Value: 1}})
	if got := Desire(r, true, time.Hour)[0].ValidUntil; !got.Equal(now.Add(200*time.Second + time.Hour)) {
		t.Errorf("valid until %v", got)
	}
}

// TestDecideWriteOfForeignObjects: only objects without a controller can be adopted.
func TestDecideWriteOfForeignObjects(t *testing.T) {
	controller := true
	controlled := live(5, valid)
	controlled.OwnerReferences = []metav1.OwnerReference{{APIVersion: "plimsoll.dev/v1alpha1", Kind: "ScoringPolicy", Name: "other", Controller: &controller}}
	for _, tc := range []struct {
		name   string
		adopt  bool
		live   *clusterv1alpha1.AddOnPlacementScore
		reason WriteReason
		taken  bool
	}{
		{"keep", false, live(5, valid), "", true},
		{"adopt", true, live(5, valid), reasonAdopted, false},
		{"adopt, but another policy controls it", true, controlled, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			owner := Owner{APIVersion: "plimsoll.dev/v1alpha1", Kind: "ScoringPolicy", Name: "p", UID: "1"}
			reason, taken := decideWrite(Request{Owner: owner, Adopt: tc.adopt, Now: now, Valid: valid}, want(5), tc.live)
			if reason != tc.reason || taken != tc.taken {
				t.Errorf("reason %q, taken %v", reason, taken)
			}
		})
	}
}

func TestOwns(t *testing.T) {
	owner := Owner{APIVersion: "plimsoll.dev/v1alpha1", Kind: "ScoringPolicy", Name: "p", UID: "1"}
	obj := &clusterv1alpha1.AddOnPlacementScore{}
	if owned, _ := owner.owns(obj); owned {
		t.Error("owns an object without owner")
	}
	obj.OwnerReferences = []metav1.OwnerReference{owner.reference()}
	if owned, current := owner.owns(obj); !owned || !current {
		t.Error("does not own its object")
	}
	owner.UID = "2"
	if owned, current := owner.owns(obj); !owned || current {
		t.Error("a policy that was created again must own the scores of its predecessor, as not current")
	}
	owner.Name = "q"
	if owned, _ := owner.owns(obj); owned {
		t.Error("owns another policy's object")
	}
}

// failingClient fails every create request with one error.
type failingClient struct {
	client.Client
	err error
}

func (c failingClient) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return nil
}

func (c failingClient) Create(context.Context, client.Object, ...client.CreateOption) error {
	return c.err
}

func (c failingClient) Status() client.SubResourceWriter { return nil }

func (c failingClient) Scheme() *runtime.Scheme { return nil }

func TestPublishRecognizesMissingNamespaces(t *testing.T) {
	namespaces := schema.GroupResource{Resource: "namespaces"}
	scores := schema.GroupResource{Group: "cluster.open-cluster-management.io", Resource: "addonplacementscores"}
	terminating := apierrors.NewForbidden(scores, "x", fmt.Errorf("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"no namespace", apierrors.NewNotFound(namespaces, "c1"), true},
		{"terminating namespace", terminating, true},
		{"resource not served", apierrors.NewGenericServerResponse(404, "post", scores, "", "", 0, true), false},
		{"other failure", fmt.Errorf("etcd is full"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Publisher{Client: failingClient{err: tc.err}}
			r := p.Publish(context.Background(), Request{Name: "x", Want: []Desired{*want(1)}, Valid: valid, Now: now})
			if got := len(r.NoNamespace) == 1; got != tc.want || r.Failed != map[bool]int{true: 0, false: 1}[tc.want] {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestPublishReportsFailedWrites(t *testing.T) {
	p := Publisher{Client: failingClient{err: fmt.Errorf("etcd is full")}}
	r := p.Publish(context.Background(), Request{Name: "x", Want: []Desired{*want(1)}, Valid: valid, Now: now})
	if r.Failed != 1 || r.Err == nil || r.Err.Error() != "write the AddOnPlacementScore of cluster c1: etcd is full" {
		t.Errorf("%+v", r)
	}
}

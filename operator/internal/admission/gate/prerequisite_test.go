package gate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// needing returns a remote workload of one pod with references such as "Secret hf".
func needing(refs ...string) shape.Facts {
	f := remote(job("a", 8, 1))
	for _, ref := range refs {
		kind, name, _ := strings.Cut(ref, " ")
		f.References = append(f.References, shape.Reference{Kind: v1alpha1.PrerequisiteKind(kind), Name: name})
	}
	return f
}

// with returns a cluster with room that reports the objects of a kind.
func with(c Candidate, kind v1alpha1.PrerequisiteKind, names ...string) Candidate {
	p := PrerequisiteResult{Kind: kind, Reported: true, EvaluatedAt: before(5), Names: map[string]bool{}}
	for _, name := range names {
		p.Names[name] = true
	}
	c.Prerequisites = append(slices.Clone(c.Prerequisites), p)
	return c
}

func TestDecidePrerequisites(t *testing.T) {
	room := func(name string) Candidate { return withQuota(cluster(name, 4, 32, 8, 64), 64) }
	changed := func(c Candidate, change func(*PrerequisiteResult)) Candidate {
		change(&c.Prerequisites[0])
		return c
	}
	const fits = "cluster1 has room for 4 such pods"
	runDecideCases(t, []decideCase{
		{name: "the object exists", facts: needing("Secret hf"), candidates: []Candidate{with(room("cluster1"), "Secret", "hf")},
			state: Ready, reason: ReasonPlaceable, message: fits, order: []string{"cluster1"}},
		{name: "only the other cluster has it", facts: needing("Secret hf"), candidates: []Candidate{with(room("cluster1"), "Secret", "hf"), with(room("cluster2"), "Secret", "ssh")},
			state: Ready, reason: ReasonPlaceable, message: fits, order: []string{"cluster1"}},
		{name: "no cluster has it", facts: needing("Secret hf"), candidates: []Candidate{with(room("cluster1"), "Secret"), with(room("cluster2"), "Secret", "ssh")},
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not have Secret hf, cluster2 does not have Secret hf"},
		{name: "several objects", facts: needing("ConfigMap code", "Secret hf", "Secret ssh"), candidates: []Candidate{with(with(room("cluster1"), "Secret", "ssh"), "ConfigMap", "other")},
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not have ConfigMap code, Secret hf"},
		{name: "many objects", facts: needing("Secret a", "Secret b", "Secret c", "Secret d", "Secret e", "Secret f", "Secret g"), candidates: []Candidate{with(room("cluster1"), "Secret")},
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not have Secret a, Secret b, Secret c, Secret d, Secret e, 2 more objects"},
		{name: "without the namespace its objects are not named", facts: needing("LocalQueue gpu", "Namespace team-a", "Secret hf"),
			candidates: []Candidate{with(with(with(room("cluster1"), "Namespace"), "Secret"), "LocalQueue")},
			state:      Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not have Namespace team-a"},
		{name: "no other cluster has room", facts: needing("Secret hf"), candidates: []Candidate{with(withQuota(cluster("cluster1", 0, 4, 4, 64), 64), "Secret", "hf"), with(room("cluster2"), "Secret")},
			state: Pending, reason: ReasonNoRoom, message: "no cluster has 8 free " + h100 + " on one node: best is cluster1 with 4; cluster2 does not have Secret hf"},
		{name: "the cluster reports no such objects", facts: needing("Secret hf"), candidates: []Candidate{changed(with(room("cluster1"), "Secret"), func(p *PrerequisiteResult) { p.Reported = false })},
			state: Ready, reason: ReasonPlaceable, message: fits + "; it is unknown whether it has Secret hf", order: []string{"cluster1"}},
		{name: "the result is too old", facts: needing("Secret hf"), candidates: []Candidate{changed(with(room("cluster1"), "Secret"), func(p *PrerequisiteResult) { p.EvaluatedAt = before(121) })},
			state: Ready, reason: ReasonPlaceable, message: fits + "; it is unknown whether it has Secret hf", order: []string{"cluster1"}},
		{name: "the result is just young enough", facts: needing("Secret hf"), candidates: []Candidate{changed(with(room("cluster1"), "Secret"), func(p *PrerequisiteResult) { p.EvaluatedAt = before(120) })},
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not have Secret hf"},
		{name: "no query succeeded", facts: needing("Secret hf"), candidates: []Candidate{changed(with(room("cluster1"), "Secret"), func(p *PrerequisiteResult) { p.EvaluatedAt = time.Time{} })},
			state: Ready, reason: ReasonPlaceable, message: fits + "; it is unknown whether it has Secret hf", order: []string{"cluster1"}},
		{name: "one kind is unknown, the object of another is missing", facts: needing("ConfigMap code", "Secret hf"), candidates: []Candidate{with(room("cluster1"), "Secret")},
			state: Pending, reason: ReasonRuledOut, message: "no cluster is eligible; cluster1 does not have Secret hf"},
		{name: "MultiKueue does not copy the workload", facts: func() shape.Facts { f := needing("Secret hf"); f.Remote = false; return f }(),
			candidates: []Candidate{with(room("cluster1"), "Secret")}, state: Ready, reason: ReasonPlaceable, message: fits, order: []string{"cluster1"}},
	})
}

// A cluster without the object holds no devices for the workload.
func TestMissingPrerequisiteIsNotALackOfRoom(t *testing.T) {
	r := rules()
	r.Hold = HoldRules{Mode: v1alpha1.HoldEnforce, After: time.Second, Aging: time.Hour}
	r.Rank.Since = before(600)
	full := withQuota(cluster("cluster1", 0, 0, 0, 64), 64)
	full.Shapes[0].EmptyFit = Known(8)
	for _, tc := range []struct {
		secret string
		holds  bool
	}{{"hf", true}, {"other", false}} {
		d := Decide(needing("Secret hf"), []Candidate{with(full, "Secret", tc.secret)}, Fleet{}, ledger.View{}, r, 1, t0)
		if (d.Hold != nil) != tc.holds || d.NoRoomAnywhere != tc.holds {
			t.Errorf("a full cluster with Secret %s: held is %t, full is %t", tc.secret, d.Hold != nil, d.NoRoomAnywhere)
		}
	}
}

func TestExplainPrerequisites(t *testing.T) {
	room := withQuota(cluster("cluster1", 4, 32, 8, 64), 64)
	_, clusters := Explain(needing("ConfigMap code", "Secret hf"), []Candidate{with(room, "Secret"), with(room, "Secret", "hf")}, Fleet{}, ledger.View{}, rules(), 1, t0)
	for i, want := range []string{"does not have Secret hf", "is eligible, it is unknown whether it has ConfigMap code"} {
		if clusters[i].Why != want {
			t.Errorf("got %q, want %q", clusters[i].Why, want)
		}
	}
}

func TestPrerequisiteQueries(t *testing.T) {
	spec := &v1alpha1.PlacementGateSpec{Prerequisites: []v1alpha1.GatePrerequisite{
		{Kind: v1alpha1.PrerequisiteNamespace}, {Kind: v1alpha1.PrerequisiteLocalQueue}, {Kind: v1alpha1.PrerequisiteSecret},
		{Kind: v1alpha1.PrerequisiteConfigMap, Query: "group by (site, name) (code)"},
		{Kind: v1alpha1.PrerequisitePriorityClass, Query: "group by (site, name) (priority_classes)"},
	}}
	got := map[string]string{}
	for _, q := range Queries(spec, "site") {
		if q.Prerequisite != "" {
			got[q.Name] = q.Expr + " " + q.ObjectLabel
		}
	}
	want := map[string]string{
		"prerequisites/Namespace":              `group by (site, namespace) (kube_namespace_status_phase{phase="Active",namespace="$namespace",exported_namespace=""} == 1) namespace`,
		"prerequisites/Namespace/reported":     "count by (site) (group by (site, namespace) (kube_namespace_status_phase{phase=\"Active\",namespace=\"$namespace\",exported_namespace=\"\"} == 1)\n) ",
		"prerequisites/LocalQueue":             `group by (site, name) (kueue_local_queue_status{namespace="$namespace",exported_namespace=""}) name`,
		"prerequisites/LocalQueue/reported":    "count by (site) (group by (site, name) (kueue_local_queue_status{namespace=\"$namespace\",exported_namespace=\"\"})\n) ",
		"prerequisites/Secret":                 `group by (site, secret) (kube_secret_info{namespace="$namespace",exported_namespace=""}) secret`,
		"prerequisites/Secret/reported":        "count by (site) (group by (site, secret) (kube_secret_info{namespace=\"$namespace\",exported_namespace=\"\"})\n) ",
		"prerequisites/ConfigMap":              `group by (site, name) (code) name`,
		"prerequisites/ConfigMap/reported":     "count by (site) (group by (site, name) (code)\n) ",
		"prerequisites/PriorityClass":          `group by (site, name) (priority_classes) name`,
		"prerequisites/PriorityClass/reported": "count by (site) (group by (site, name) (priority_classes)\n) ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

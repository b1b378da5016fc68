package gate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// declaredRejections returns the values of all constants of type Rejection in this package.
func declaredRejections(t *testing.T) map[string]Rejection {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]Rejection{}
	addConstants := func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Rejection" {
			return true
		}
		for i, name := range spec.Names {
			value, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared[name.Name] = Rejection(value)
		}
		return true
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, addConstants)
	}
	return declared
}

func TestEveryRejectionHasOneRow(t *testing.T) {
	declared := declaredRejections(t)
	if len(declared) != len(rejections) {
		t.Errorf("%d constants, %d rows", len(declared), len(rejections))
	}
	for name, r := range declared {
		t.Run(name, func(t *testing.T) {
			rows := slices.DeleteFunc(slices.Clone(rejections), func(row rejectionRow) bool { return row.rejection != r })
			if len(rows) != 1 {
				t.Fatalf("%d rows, want 1", len(rows))
			}
			row := rows[0]
			if row.message == nil {
				t.Fatal("no message")
			}
			if text := row.message(Verdict{Rejection: r, Detail: "detail"}); text == "" || strings.Contains(text, "%!") {
				t.Errorf("message is %q", text)
			}
			if r != RejectNone && !slices.Contains(pendingReasons, row.reason) {
				t.Errorf("reason %q is not in pendingReasons", row.reason)
			}
			if row.full && (row.measured != (r == RejectNoRoom) || !row.mayHoldCopy) {
				t.Error("of full clusters, those without room are measured, and a copy may occupy the room of all")
			}
		})
	}
}

func TestRejectionMessages(t *testing.T) {
	for _, tc := range []struct {
		name    string
		verdict Verdict
		want    string
	}{
		{"none", Verdict{}, "is eligible"},
		{"none, quota unknown and a requirement ignored", Verdict{QuotaUnknown: true, IgnoredRequirements: []string{"power"}},
			"is eligible, its quota is unknown, requirement power has no result and onStale is Open"},
		{"none, requirements ignored", Verdict{IgnoredRequirements: []string{"power", "freeze"}},
			"is eligible, requirements power, freeze have no result and onStale is Open"},
		{"unusable", Verdict{Rejection: RejectDisconnected, Detail: "has no MultiKueueCluster"}, "has no MultiKueueCluster"},
		{"score", Verdict{Rejection: RejectScore, Detail: "fleet/total"}, "has a score fleet/total below the minimum"},
		{"no score", Verdict{Rejection: RejectNoScore, Detail: "fleet/total"}, "has no valid score fleet/total"},
		{"requirement", Verdict{Rejection: RejectRequirement, Detail: "power"}, "does not meet requirement power"},
		{"requirement failing", Verdict{Rejection: RejectRequirementFailing, Detail: "power"}, "has no result for requirement power"},
		{"unknown", Verdict{Rejection: RejectUnknown}, "reports no samples"},
		{"stale", Verdict{Rejection: RejectStale, Detail: "2m0s", Age: 215}, "has samples 3m35s old"},
		{"no model", Verdict{Rejection: RejectNoModel, Detail: h100}, "has no free " + h100},
		{"no series", Verdict{Rejection: RejectNoFit, Detail: h100, Capacity: 64}, "has 64 " + h100 + ", and no series of the gate's query fit"},
		{"no queue", Verdict{Rejection: RejectNoQueue, Detail: "nvidia.com/gpu in ClusterQueue cq"}, "has no quota for nvidia.com/gpu in ClusterQueue cq"},
		{"no room", Verdict{Rejection: RejectNoRoom, Room: Known(1)}, "has room for 1 such pod"},
		{"no room, devices promised", Verdict{Rejection: RejectNoRoom, Room: Known(0), Promised: 8}, "has room for 0 such pods, with 8 devices promised"},
		{"no room, one device promised", Verdict{Rejection: RejectNoRoom, Room: Known(0), Promised: 1}, "has room for 0 such pods, with 1 device promised"},
		{"no room, too little quota", Verdict{Rejection: RejectNoRoom, Quota: Known(2), Promised: 1}, "has quota for 2 such pods, with 1 device promised"},
		{"doubted", Verdict{Rejection: RejectDoubted, Detail: "2 workloads have not started there since 12:00:00 UTC"}, "is doubted: 2 workloads have not started there since 12:00:00 UTC"},
		{"quota failing", Verdict{Rejection: RejectQuotaFailing}, "has no result for the quota of its queue"},
		{"rejection of another version", Verdict{Rejection: "Other"}, "Other"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.verdict.Why(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Where a workload may be sent in addition, and which clusters keep their tier.
func TestMeaningOfRejections(t *testing.T) {
	for _, tc := range []struct {
		rejection                               Rejection
		mayHoldCopy, roomUnknown, countsForTier bool
	}{
		{RejectNone, true, false, true},
		{RejectNoRoom, true, false, true},
		{RejectHeld, true, false, true},
		{RejectDoubted, true, false, true},
		{RejectNoModel, true, false, false},
		{RejectNoFit, true, false, false},
		{RejectUnknown, false, true, false},
		{RejectStale, false, true, false},
		{RejectQuotaFailing, false, true, false},
		{RejectDisconnected, false, false, false},
		{RejectScore, false, false, false},
		{RejectNoScore, false, false, false},
		{RejectRequirement, false, false, false},
		{RejectRequirementFailing, false, false, false},
		{RejectPrerequisite, false, false, false},
		{RejectNoQueue, false, false, false},
		{RejectOutside, false, false, false},
		{"Other", false, false, false},
	} {
		t.Run(string(tc.rejection), func(t *testing.T) {
			r := tc.rejection
			if r.MayHoldCopy() != tc.mayHoldCopy || r.IsRoomUnknown() != tc.roomUnknown || r.countsForTier() != tc.countsForTier {
				t.Errorf("may hold a copy: %t, room unknown: %t, counts for the tier: %t", r.MayHoldCopy(), r.IsRoomUnknown(), r.countsForTier())
			}
		})
	}
}

func TestPendingReason(t *testing.T) {
	failing := Fleet{Problem: "timeout"}
	for _, tc := range []struct {
		name       string
		fleet      Fleet
		rejections []Rejection
		want       string
	}{
		{"no room counts first", failing, []Rejection{RejectStale, RejectRequirementFailing, RejectNoRoom}, ReasonNoRoom},
		{"no room counts before doubt, which other clusters could end", Fleet{}, []Rejection{RejectDoubted, RejectNoRoom}, ReasonNoRoom},
		{"doubt", Fleet{}, []Rejection{RejectDoubted, RejectRequirementFailing}, ReasonDoubted},
		{"no such devices", Fleet{}, []Rejection{RejectDisconnected, RejectNoModel}, ReasonNoRoom},
		{"requirement failing", Fleet{}, []Rejection{RejectStale, RejectRequirementFailing}, ReasonNoMetrics},
		{"quota failing", Fleet{}, []Rejection{RejectQuotaFailing}, ReasonNoMetrics},
		{"stale while the source fails", failing, []Rejection{RejectStale}, ReasonNoMetrics},
		{"unknown while the source fails", failing, []Rejection{RejectUnknown}, ReasonNoMetrics},
		{"score while the source fails", failing, []Rejection{RejectScore}, ReasonNoMetrics},
		{"no score while the source fails", failing, []Rejection{RejectNoScore}, ReasonNoMetrics},
		{"unusable while the source fails", failing, []Rejection{RejectDisconnected}, ReasonRuledOut},
		{"no series of fit", Fleet{}, []Rejection{RejectDisconnected, RejectStale, RejectNoFit}, ReasonNoMetrics},
		{"no series of fit where such devices are", Fleet{}, []Rejection{RejectNoModel, RejectNoFit}, ReasonNoMetrics},
		{"no series of fit, but another cluster is full", Fleet{}, []Rejection{RejectNoModel, RejectNoFit, RejectNoRoom}, ReasonNoRoom},
		{"stale counts before scores", Fleet{}, []Rejection{RejectScore, RejectUnknown}, ReasonStale},
		{"no quota", Fleet{}, []Rejection{RejectNoQueue}, ReasonRuledOut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var verdicts []Verdict
			for _, r := range tc.rejections {
				verdicts = append(verdicts, Verdict{Rejection: r})
			}
			if got := pendingReason(verdicts, tc.fleet); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// The order of the table decides which of several broken rules a verdict states.
func TestRulesApplyInTableOrder(t *testing.T) {
	minimum := int32(30)
	c := withRequirements(withScore(sampledBefore(cluster("cluster1", 0, 0, 0, 64), 200), 10), evaluated("power", 0))
	c.Exclude(RejectNotMember, "gpu")
	want := []BrokenRule{{RejectNotMember, "gpu"}, {RejectScore, "fleet/total"}, {RejectRequirement, "power"}, {RejectStale, "2m0s"}}
	for _, tc := range []struct {
		name  string
		facts shape.Facts
		want  []BrokenRule
	}{
		{"workload with devices", job("a", 8, 1), want},
		{"workload without devices needs no samples", shape.Facts{UID: "a"}, want[:3]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEvaluation(tc.facts, []Candidate{c}, Fleet{}, scoreRules(&minimum), t0)
			if got := e.brokenRules(&c, false); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if got := e.brokenRules(&c, true); !slices.Equal(got, tc.want[:1]) {
				t.Errorf("first only: got %v, want %v", got, tc.want[:1])
			}
		})
	}
}

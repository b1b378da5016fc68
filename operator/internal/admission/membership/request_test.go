package membership

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

// A cluster that a job needs takes the place of the worst member that no job needs, after two
// rounds in which no job was sent there.
func TestRequestedClusterReplacesAnUnusedMember(t *testing.T) {
	var all []Ranked
	for i := range 22 {
		all = append(all, Ranked{Name: fmt.Sprintf("c%02d", i), Points: gate.Known(float64(100 - i))})
	}
	names := func(except ...string) (list []string) {
		for _, r := range all {
			if !slices.Contains(except, r.Name) {
				list = append(list, r.Name)
			}
		}
		return list
	}
	type round struct {
		requested []string
		inUse     []string
	}
	request := round{requested: []string{"c21"}}
	for _, tc := range []struct {
		name        string
		rounds      []round
		want        []string
		wantLeaving []string
	}{
		{"nothing is requested", []round{{}, {}, {}, {}}, names("c20", "c21"), nil},
		{"the worst member is about to leave", []round{request, request}, names("c20", "c21"), []string{"c19"}},
		{"it left after two rounds", []round{request, request, request}, names("c19", "c20"), []string{"c19"}},
		{"the request ended before", []round{request, request, {}, {}}, names("c20", "c21"), nil},
		{"a member in use stays", []round{{request.requested, []string{"c19"}}, {request.requested, []string{"c19"}}, {request.requested, []string{"c19"}}}, names("c18", "c20"), []string{"c18"}},
		{"a job was sent there meanwhile", []round{request, request, {request.requested, []string{"c19"}}}, names("c20", "c21"), []string{"c18"}},
		{"a worse member is no longer in use", []round{{request.requested, []string{"c19"}}, request, {request.requested, []string{"c19"}}}, names("c18", "c20"), []string{"c18"}},
		{"a requested member stays", []round{{[]string{"c19", "c21"}, nil}, {[]string{"c19", "c21"}, nil}, {[]string{"c19", "c21"}, nil}}, names("c18", "c20"), []string{"c18"}},
		{"the round after", []round{request, request, request, {}}, names("c19", "c20"), nil},
		{"every member is in use", []round{{request.requested, names("c20", "c21")}, {request.requested, names("c20", "c21")}, {request.requested, names("c20", "c21")}}, names("c20", "c21"), nil},
		{"two are requested", []round{{[]string{"c21", "c20"}, nil}, {[]string{"c21", "c20"}, nil}, {[]string{"c21", "c20"}, nil}}, names("c18", "c19"), []string{"c19", "c18"}},
		{"a cluster that is not decided", []round{{[]string{"other"}, nil}, {[]string{"other"}, nil}, {[]string{"other"}, nil}}, names("c20", "c21"), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var history History
			result := Result{Clusters: names("c20", "c21")}
			for i, r := range tc.rounds {
				inUse := map[string]bool{}
				for _, name := range r.inUse {
					inUse[name] = true
				}
				result = Plan(result.Clusters, all, inUse, &history, Settings{Period: period, Requested: r.requested}, t0.Add(time.Duration(i)*period))
			}
			if !slices.Equal(result.Clusters, tc.want) || !slices.Equal(result.Leaving, tc.wantLeaving) {
				t.Errorf("got %v, leaving %v\nwant %v, leaving %v", result.Clusters, result.Leaving, tc.want, tc.wantLeaving)
			}
		})
	}
}

// A requested cluster is the first to take a free place.
func TestRequestedClusterJoinsFirst(t *testing.T) {
	var all []Ranked
	for i := range 25 {
		all = append(all, Ranked{Name: fmt.Sprintf("c%02d", i), Points: gate.Known(float64(100 - i))})
	}
	var history History
	result := Plan(nil, all, nil, &history, Settings{Period: period, Requested: []string{"c24"}}, t0)
	if !slices.Contains(result.Clusters, "c24") || len(result.Clusters) != MaxClusters {
		t.Errorf("got %v, want c24 among %d clusters", result.Clusters, MaxClusters)
	}
}

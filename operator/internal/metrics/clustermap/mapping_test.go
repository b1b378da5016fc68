package clustermap

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// managedCluster returns a cluster with a label "site" and a claim "id". An empty
// claim is left out.
func managedCluster(name, site, id string) clusterv1.ManagedCluster {
	c := clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"site": site}}}
	if id != "" {
		c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "other", Value: "x"}, {Name: "id", Value: id}}
	}
	return c
}

var clusters = []clusterv1.ManagedCluster{
	managedCluster("d", "two", "uid-d"), managedCluster("a", "one", "uid-a"), managedCluster("b", "two", "uid-b"),
	managedCluster("c", "two", "uid-c"), managedCluster("e", "", ""),
}

func TestNew(t *testing.T) {
	for _, tc := range []struct {
		name      string
		info      query.SourceInfo
		want      map[string]string // cluster by label value
		ambiguous map[string][]string
	}{
		{
			name: "match defaults to the name",
			info: query.SourceInfo{ClusterLabel: "cluster"},
			want: map[string]string{"a": "a", "b": "b", "c": "c", "d": "d", "e": "e"},
		},
		{
			name: "by name",
			info: query.SourceInfo{ClusterLabel: "cluster", Match: "Name", Key: "site"},
			want: map[string]string{"a": "a", "b": "b", "c": "c", "d": "d", "e": "e"},
		},
		{
			name:      "by label, shared by three clusters",
			info:      query.SourceInfo{ClusterLabel: "cluster", Match: "Label", Key: "site"},
			want:      map[string]string{"one": "a"},
			ambiguous: map[string][]string{"two": {"b", "c", "d"}},
		},
		{
			name: "by claim, absent on one cluster",
			info: query.SourceInfo{ClusterLabel: "cluster", Match: "ClusterClaim", Key: "id"},
			want: map[string]string{"uid-a": "a", "uid-b": "b", "uid-c": "c", "uid-d": "d"},
		},
		{
			name:      "by a claim that clusters have copied",
			info:      query.SourceInfo{ClusterLabel: "cluster", Match: "ClusterClaim", Key: "other"},
			want:      map[string]string{},
			ambiguous: map[string][]string{"x": {"a", "b", "c", "d"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New(clusters, tc.info)
			if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, m.Names()); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			got := map[string]string{}
			for _, value := range []string{"", "a", "b", "c", "d", "e", "one", "two", "uid-a", "uid-b", "uid-c", "uid-d", "elsewhere"} {
				if name, ok := m.Cluster(value); ok {
					got[value] = name
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("clusters by value (-want +got):\n%s", diff)
			}
			ambiguous := m.Ambiguous()
			if len(ambiguous) == 0 {
				ambiguous = nil
			}
			if diff := cmp.Diff(tc.ambiguous, ambiguous); diff != "" {
				t.Errorf("ambiguous values (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFromNamesSortsAndRemovesDuplicates(t *testing.T) {
	m := FromNames("region", []string{"b", "a", "b"})
	if diff := cmp.Diff([]string{"a", "b"}, m.Names()); diff != "" || m.Len() != 2 || m.Label() != "region" {
		t.Errorf("label %q, names (-want +got):\n%s", m.Label(), diff)
	}
	if name, ok := m.Cluster("b"); !ok || name != "b" {
		t.Errorf("b maps to %q, %t", name, ok)
	}
}

func TestSelect(t *testing.T) {
	byLabel := New(clusters, query.SourceInfo{ClusterLabel: "cluster", Match: "Label", Key: "site"})
	byName := New(clusters, query.SourceInfo{ClusterLabel: "cluster"})
	for _, tc := range []struct {
		name      string
		from      *Mapping
		selection []string
		names     []string
		mapped    map[string]string
		ambiguous bool // the value "two"
	}{
		{"nothing", byName, nil, nil, map[string]string{}, false},
		{"some, in any order", byName, []string{"d", "b"}, []string{"b", "d"}, map[string]string{"b": "b", "d": "d"}, false},
		{"a name that the hub does not have", byName, []string{"b", "x"}, []string{"b"}, map[string]string{"b": "b"}, false},
		{"a unique value", byLabel, []string{"a"}, []string{"a"}, map[string]string{"one": "a"}, false},
		{"one of those that share a value", byLabel, []string{"a", "c"}, []string{"a", "c"}, map[string]string{"one": "a"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := tc.from.Select(tc.selection)
			if diff := cmp.Diff(tc.names, m.Names()); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			got := map[string]string{}
			for _, value := range []string{"a", "b", "c", "d", "e", "x", "one", "two"} {
				if name, ok := m.Cluster(value); ok {
					got[value] = name
				}
			}
			if diff := cmp.Diff(tc.mapped, got); diff != "" {
				t.Errorf("clusters by value (-want +got):\n%s", diff)
			}
			if _, ambiguous := m.Ambiguous()["two"]; ambiguous != tc.ambiguous {
				t.Errorf("two is ambiguous: %t, want %t", ambiguous, tc.ambiguous)
			}
		})
	}
}

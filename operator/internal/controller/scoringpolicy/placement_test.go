//go:build integration

package scoringpolicy_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// programPath returns the path of a program of the lab.
func programPath(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("go", "run", "./test/lab", "path", name)
	cmd.Dir, cmd.Stderr = "../../../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// start runs a program until the test ends or stop is called. stop kills the program.
func start(t *testing.T, path string, args []string) (stop func()) {
	t.Helper()
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func kubeconfigFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startPlacementController runs the placement controller of OCM.
func startPlacementController(t *testing.T) {
	t.Helper()
	create(t, &clusterv1beta2.ManagedClusterSet{
		ObjectMeta: metav1.ObjectMeta{Name: "global"},
		Spec: clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: clusterv1beta2.ManagedClusterSelector{
			SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{},
		}},
	})
	create(t, &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "global"},
		Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: "global"},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	start(t, programPath(t, "placement"), []string{"--kubeconfig=" + kubeconfigFile(t), "--listen=" + address})
}

func placement(name, score string, wanted int32, cel ...string) *clusterv1beta1.Placement {
	p := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.Predicates = []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
		LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"fleet": name}},
		CelSelector:   clusterv1beta1.ClusterCelSelector{CelExpressions: cel},
	}}}
	if wanted > 0 {
		p.Spec.NumberOfClusters = &wanted
	}
	p.Spec.PrioritizerPolicy = clusterv1beta1.PrioritizerPolicy{
		Mode: clusterv1beta1.PrioritizerPolicyModeExact,
		Configurations: []clusterv1beta1.PrioritizerConfig{{Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{
			Type: clusterv1beta1.ScoreCoordinateTypeAddOn, AddOn: &clusterv1beta1.AddOnScore{ResourceName: name, ScoreName: score},
		}}},
	}
	return p
}

// decided returns the names of the clusters that a Placement selected, sorted.
func decided(g gomega.Gomega, placement string) []string {
	var list clusterv1beta1.PlacementDecisionList
	g.Expect(api.List(context.Background(), &list, client.InNamespace("default"),
		client.MatchingLabels{clusterv1beta1.PlacementLabel: placement})).To(gomega.Succeed())
	var names []string
	for i := range list.Items {
		for _, d := range list.Items[i].Status.Decisions {
			names = append(names, d.ClusterName)
		}
	}
	slices.Sort(names)
	return names
}

func linearFull(name, query, from, to string) v1alpha1.ScoreSpec {
	return v1alpha1.ScoreSpec{Name: name, Query: query, Range: v1alpha1.RangeFull, Normalize: v1alpha1.Normalize{
		Type: v1alpha1.NormalizeLinear, Linear: &v1alpha1.Linear{From: resource.MustParse(from), To: resource.MustParse(to)},
	}}
}

// TestPlacementUsesPublishedScores lets the placement controller of OCM select clusters by
// published scores. The cases are taken from the projects named below.
func TestPlacementUsesPublishedScores(t *testing.T) {
	identity := v1alpha1.ScoreSpec{Name: "y", Query: "raw", Normalize: v1alpha1.Normalize{Type: v1alpha1.NormalizeIdentity}}
	normalizer := linearFull("y", "raw", "0", "50") // sdk-go's
	gpu := linearFull("y", "raw", "0", "20")        // resource-usage-collect's
	cpu := linearFull("y", "raw", "0", "100")
	startOperator(t)
	startPlacementController(t)
	for _, tc := range []struct {
		name   string
		score  v1alpha1.ScoreSpec
		raw    []string // of each cluster, sorted by name; empty: no series
		scores []int32  // published
		wanted int32
		cel    []string
		chosen []int // clusters, counted from 1
	}{
		{"two-best", identity, []string{"80", "90", "100"}, []int32{80, 90, 100}, 2, nil, []int{2, 3}},
		{"two-equal", identity, []string{"100", "90", "100"}, []int32{100, 90, 100}, 2, nil, []int{1, 3}},
		{"none", identity, []string{"", "", ""}, nil, 2, nil, []int{1, 2}},
		{"cel", identity, []string{"70", "90"}, []int32{70, 90}, 0,
			[]string{`managedCluster.scores("cel").exists(s, s.name == "y" && s.value > 80)`}, []int{2}},
		{"normalizer", normalizer, []string{"0", "25", "50", "-10", "60"}, []int32{-100, 0, 100, -100, 100}, 2, nil, []int{3, 5}},
		{"gpu", gpu, []string{"0", "2", "3", "20", "33"}, []int32{-100, -80, -70, 100, 100}, 3, nil, []int{3, 4, 5}},
		{"gpu-scopes", gpu, []string{"12", "6"}, []int32{20, -40}, 1, nil, []int{1}},
		{"cpu-scopes", cpu, []string{"44", "28"}, []int32{-12, -44}, 1, nil, []int{1}},
		{"no-metrics-ranks-last", normalizer, []string{"", "1"}, []int32{-100, -96}, 1, nil, []int{2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			prom := newPrometheus(t)
			raw, names := map[string]string{}, []string{}
			for i, v := range tc.raw {
				names = append(names, fmt.Sprintf("%s-%d", tc.name, i+1))
				createCluster(t, names[i], map[string]string{"fleet": tc.name})
				if v != "" {
					raw[names[i]] = v
				}
			}
			prom.set("raw", raw)
			if tc.scores != nil {
				create(t, source(tc.name, prom.URL))
				p := policy(tc.name)
				p.Spec.Scores, p.Spec.Total = []v1alpha1.ScoreSpec{tc.score}, nil
				create(t, p)
			}
			eventually(t, func(g gomega.Gomega) {
				for i, want := range tc.scores {
					g.Expect(values(g, names[i], tc.name)).To(gomega.Equal(scores{"y": want}))
				}
			})
			create(t, placement(tc.name, "y", tc.wanted, tc.cel...))
			var chosen []string
			for _, i := range tc.chosen {
				chosen = append(chosen, names[i-1])
			}
			eventually(t, func(g gomega.Gomega) { g.Expect(decided(g, tc.name)).To(gomega.Equal(chosen)) })
		})
	}
}

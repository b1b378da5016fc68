package scenario

import (
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestCheckShadowReport(t *testing.T) {
	row := func(cluster, would string, outcome v1alpha1.GateOutcome) v1alpha1.ShadowWorkload {
		return v1alpha1.ShadowWorkload{Workload: "lab/job", Cluster: cluster, Would: would, Outcome: outcome}
	}
	for _, tc := range []struct {
		name string
		row  v1alpha1.ShadowWorkload
		want string
	}{
		{"to another cluster", row("cluster1", "cluster2", v1alpha1.OutcomeOtherCluster), ""},
		{"to the cluster where it hung", row("cluster1", "cluster1", v1alpha1.OutcomeWait), "the gate would have sent lab/job to cluster1"},
		{"to no cluster", row("cluster1", "", v1alpha1.OutcomeWait), "the report does not say where lab/job would have gone: Wait"},
		{"it did not hang", row("cluster2", "", v1alpha1.OutcomeWait), "the report names 0 of 1 jobs that hung on cluster1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := checkShadowReport(&v1alpha1.GateShadow{Workloads: []v1alpha1.ShadowWorkload{tc.row}}, 1); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

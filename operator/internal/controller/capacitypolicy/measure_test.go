package capacitypolicy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func TestTooManyClusters(t *testing.T) {
	var many []client.Object
	for i := range maxClusters {
		many = append(many, managedCluster(fmt.Sprintf("m%d", i), true))
	}
	h := newHub(t, nil, many...)
	if got := describe(h.round(), v1alpha1.ConditionMeasured); !strings.HasPrefix(got, "False TooManyClusters: the policy selects 502 clusters") {
		t.Errorf("Measured is %s", got)
	}
}

// Each quota lists its clusters, so many quotas allow fewer clusters.
func TestTooManyClustersForTheQuotas(t *testing.T) {
	for clusters, want := range map[int]string{187: "True Fresh", 188: "False TooManyClusters: the policy selects 188 clusters, at most 187 are allowed with 16 quotas"} {
		var many []client.Object
		for i := range clusters - 2 {
			many = append(many, managedCluster(fmt.Sprintf("m%d", i), true))
		}
		h := newHub(t, func(s *v1alpha1.CapacityPolicySpec) {
			s.Quotas[0].UnhealthyQuery = ""
			for i := range 15 {
				q := s.Quotas[0]
				q.Resource = fmt.Sprintf("example.com/gpu-%d", i)
				s.Quotas = append(s.Quotas, q)
			}
		}, many...)
		for i := range clusters - 2 {
			h.responses[usable] = query.Result{Samples: append(h.responses[usable].Samples, query.Sample{Labels: map[string]string{"cluster": fmt.Sprintf("m%d", i)}, Value: 8})}
		}
		if got := describe(h.round(), v1alpha1.ConditionMeasured); !strings.HasPrefix(got, want) {
			t.Errorf("%d clusters: Measured is %s", clusters, got)
		}
	}
}

// etcd stores at most 1.5 MiB for an object. The API server records the fields of each entry a second
// time in managedFields, so the status may have half of it.
func TestLargestStatusFitsIntoEtcd(t *testing.T) {
	for quotas := 1; quotas <= 16; quotas++ {
		status := v1alpha1.CapacityPolicyStatus{}
		for range quotas {
			q := v1alpha1.QuotaStatus{Flavor: strings.Repeat("f", 63), Resource: strings.Repeat("r", 63)}
			for i := range clusterLimit(quotas) {
				q.Clusters = append(q.Clusters, v1alpha1.ClusterCapacity{Name: fmt.Sprintf("%063d", i), Devices: 10000, Unhealthy: new(int64(1000)),
					State: v1alpha1.CapacityMissing, Reason: reasonSeveralSamples, Since: &metav1.Time{Time: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}})
			}
			status.Quotas = append(status.Quotas, q)
		}
		encoded, err := json.Marshal(status)
		if err != nil || len(encoded) > 3<<18 {
			t.Errorf("%d quotas: %d bytes, %v", quotas, len(encoded), err)
		}
	}
}

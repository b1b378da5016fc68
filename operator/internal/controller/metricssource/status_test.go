package metricssource

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func TestDecideSecure(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec v1alpha1.MetricsSourceSpec
		want string
	}{
		{"https", v1alpha1.MetricsSourceSpec{URL: "https://x"}, "Verified"},
		{"http", v1alpha1.MetricsSourceSpec{URL: "http://x"}, "PlainHTTP"},
		{"no verification", v1alpha1.MetricsSourceSpec{URL: "https://x", TLS: &v1alpha1.TLSConfig{InsecureSkipVerify: true}}, "InsecureSkipVerify"},
		{"http per cluster", v1alpha1.MetricsSourceSpec{Topology: &v1alpha1.Topology{Type: v1alpha1.TopologyPerCluster, URLTemplate: "http://{cluster}"}}, "PlainHTTP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decideSecure(&tc.spec); got.Reason != tc.want || got.IsTrue() != (tc.want == "Verified") {
				t.Errorf("%+v, want %s", got, tc.want)
			}
		})
	}
}

func TestSetConditions(t *testing.T) {
	down := &query.Error{Reason: query.ReasonTimeout, Message: "no response within 10s"}
	for _, tc := range []struct {
		name       string
		sourceType v1alpha1.SourceType
		observed   observation
		want       map[string]string
	}{
		{
			"healthy Prometheus", v1alpha1.SourcePrometheus, observation{version: "3.1.0"},
			map[string]string{"Ready": "True/Ready", "Reachable": "True/QuerySucceeded", "Secure": "True/Verified"},
		},
		{
			"unreachable", v1alpha1.SourcePrometheus, observation{queryErr: down},
			map[string]string{"Ready": "False/Timeout", "Reachable": "False/Timeout", "Secure": "True/Verified"},
		},
		{
			"invalid configuration", v1alpha1.SourceThanos, observation{configErr: errors.New("Secret x/y does not exist")},
			map[string]string{"Ready": "False/InvalidConfiguration", "Reachable": "False/InvalidConfiguration", "Secure": "True/Verified"},
		},
		{
			"healthy Thanos", v1alpha1.SourceThanos, observation{},
			map[string]string{"Ready": "True/Ready", "Reachable": "True/QuerySucceeded", "Secure": "True/Verified", "CompleteResponses": "True/AllStoresResponded"},
		},
		{
			"partial responses of another type", v1alpha1.SourcePrometheus, observation{health: query.Health{Partial: "remote_read: timeout"}},
			map[string]string{"Ready": "True/Ready", "Reachable": "True/QuerySucceeded", "Secure": "True/Verified", "CompleteResponses": "False/StoresMissing"},
		},
		{
			"Thanos without a store", v1alpha1.SourceThanos, observation{health: query.Health{Partial: "store x: connection refused"}},
			map[string]string{"Ready": "True/Ready", "Reachable": "True/QuerySucceeded", "Secure": "True/Verified", "CompleteResponses": "False/StoresMissing"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := &v1alpha1.MetricsSource{Spec: v1alpha1.MetricsSourceSpec{URL: "https://x", Type: tc.sourceType}}
			src.Generation = 7
			setConditions(src, observation{health: query.Health{Partial: "an earlier state"}})
			setConditions(src, tc.observed)
			got := map[string]string{}
			for _, c := range src.Status.Conditions {
				got[c.Type] = string(c.Status) + "/" + c.Reason
				if want := "responses lack data: " + tc.observed.health.Partial; got[c.Type] == "False/StoresMissing" && c.Message != want {
					t.Errorf("%s: message %q, want %q", c.Type, c.Message, want)
				}
				if c.ObservedGeneration != 7 {
					t.Errorf("%s observed generation %d", c.Type, c.ObservedGeneration)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

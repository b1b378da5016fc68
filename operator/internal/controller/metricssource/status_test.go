package metricssource

import (
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestSecureCondition(t *testing.T) {
	for _, tc := range []struct {
		spec v1alpha1.MetricsSourceSpec
		want string
	}{
		{v1alpha1.MetricsSourceSpec{URL: "https://x"}, "Verified"},
		{v1alpha1.MetricsSourceSpec{URL: "http://x"}, "PlainHTTP"},
		{v1alpha1.MetricsSourceSpec{URL: "https://x", TLS: &v1alpha1.TLSConfig{InsecureSkipVerify: true}}, "InsecureSkipVerify"},
		{v1alpha1.MetricsSourceSpec{Topology: &v1alpha1.Topology{Type: v1alpha1.TopologyPerCluster, URLTemplate: "http://{cluster}"}}, "PlainHTTP"},
	} {
		if _, reason, _ := secure(&tc.spec); reason != tc.want {
			t.Errorf("%+v: %s, want %s", tc.spec, reason, tc.want)
		}
	}
}

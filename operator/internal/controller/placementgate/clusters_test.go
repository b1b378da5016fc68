package placementgate

import (
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestCredentials(t *testing.T) {
	for _, tc := range []struct {
		creds           v1alpha1.Credentials
		secret, profile string
	}{
		{v1alpha1.Credentials{}, "cluster1-kubeconfig", ""},
		{v1alpha1.Credentials{Type: v1alpha1.CredentialsSecret, NameTemplate: "kc-{cluster}"}, "kc-cluster1", ""},
		{v1alpha1.Credentials{Type: v1alpha1.CredentialsClusterProfile}, "", "cluster1"},
		{v1alpha1.Credentials{Type: v1alpha1.CredentialsClusterProfile, NameTemplate: "set-{cluster}"}, "", "set-cluster1"},
	} {
		source := newCluster("gpu", "cluster1", tc.creds).Spec.ClusterSource
		var secret, profile string
		if source.KubeConfig != nil {
			secret = source.KubeConfig.Location
		}
		if source.ClusterProfileRef != nil {
			profile = source.ClusterProfileRef.Name
		}
		if secret != tc.secret || profile != tc.profile {
			t.Errorf("%+v: secret %q, profile %q", tc.creds, secret, profile)
		}
	}
}

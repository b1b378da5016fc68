package placementgate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestNewClusterNamesCredentials(t *testing.T) {
	for _, tc := range []struct {
		name            string
		credentials     v1alpha1.Credentials
		secret, profile string
	}{
		{"default", v1alpha1.Credentials{}, "cluster1-kubeconfig", ""},
		{"Secret by template", v1alpha1.Credentials{Type: v1alpha1.CredentialsSecret, NameTemplate: "kc-{cluster}"}, "kc-cluster1", ""},
		{"ClusterProfile", v1alpha1.Credentials{Type: v1alpha1.CredentialsClusterProfile}, "", "cluster1"},
		{"ClusterProfile by template", v1alpha1.Credentials{Type: v1alpha1.CredentialsClusterProfile, NameTemplate: "set-{cluster}"}, "", "set-cluster1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source := newCluster("gpu", "cluster1", tc.credentials).Spec.ClusterSource
			var secret, profile string
			if source.KubeConfig != nil {
				secret = source.KubeConfig.Location
			}
			if source.ClusterProfileRef != nil {
				profile = source.ClusterProfileRef.Name
			}
			if secret != tc.secret || profile != tc.profile {
				t.Errorf("secret %q, profile %q", secret, profile)
			}
		})
	}
}

func TestDecideClusters(t *testing.T) {
	in := newInput("new", "current", "renewed", "unowned", "other", "outside")
	own := func(name string, credentials v1alpha1.Credentials) {
		in.mkClusters[name] = newCluster("gpu", name, credentials)
	}
	own("current", v1alpha1.Credentials{})
	own("renewed", v1alpha1.Credentials{NameTemplate: "old-{cluster}"})
	own("former-member", v1alpha1.Credentials{NameTemplate: "old-{cluster}"})
	in.mkClusters["unowned"], in.mkClusters["other"] = newForeignCluster("unowned", ""), newForeignCluster("other", "other")
	members := []string{"new", "current", "renewed", "unowned", "other", "not-decided"}
	for _, tc := range []struct {
		name           string
		credentials    v1alpha1.CredentialsType
		create, change []string
	}{
		{"Secret", v1alpha1.CredentialsSecret, []string{"new"}, []string{"former-member", "renewed"}},
		{"ClusterProfile", v1alpha1.CredentialsClusterProfile, []string{"new"}, []string{"current", "former-member", "renewed"}},
		{"Existing", v1alpha1.CredentialsExisting, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in.gate.Spec.MultiKueue.Credentials.Type = tc.credentials
			toCreate, toChange := decideClusters(in, members)
			var create, change []string
			for _, c := range toCreate {
				create = append(create, c.Name)
			}
			for _, c := range toChange {
				change = append(change, c.after.Name)
			}
			if diff := cmp.Diff(tc.create, create); diff != "" {
				t.Errorf("create (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.change, change); diff != "" {
				t.Errorf("change (-want +got):\n%s", diff)
			}
		})
	}
}

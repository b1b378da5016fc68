package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The pages have no rights on the hub and on their node, and only the proxy reaches them.
func TestUIHasNoRights(t *testing.T) {
	spec := podTemplate(t, "ui").Spec
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		t.Error("a service account token is mounted")
	}
	for _, v := range spec.Volumes {
		if v.ConfigMap == nil {
			t.Errorf("the volume %s is not a ConfigMap", v.Name)
		}
	}
	if d := cmp.Diff(nodePrivileges{}, privilegesOf(t, "ui")); d != "" {
		t.Errorf("rights on the node (-want +got):\n%s", d)
	}
	if c := spec.SecurityContext; !ptr.Deref(c.RunAsNonRoot, false) || c.SeccompProfile == nil || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod does not meet the level restricted: %+v", c)
	}
	objects, _ := buildFolder(t, "ui")
	found := false
	for _, object := range objects {
		switch o := object.(type) {
		case *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding, *rbacv1.Role, *rbacv1.ClusterRole:
			t.Errorf("%T grants rights", o)
		case *networkingv1.NetworkPolicy:
			found = true
			want := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"plimsoll.dev/ui-proxy": "true"}}}}
			if len(o.Spec.Ingress) != 1 || cmp.Diff(want, o.Spec.Ingress[0].From) != "" {
				t.Errorf("others than the proxy reach the pages: %+v", o.Spec.Ingress)
			}
		}
	}
	if !found {
		t.Error("no NetworkPolicy")
	}
}

package fleet

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// RunDeployment runs the operator as a kubelet runs a pod of its Deployment: with its
// arguments and a token of its service account. Only the addresses are on loopback.
func (f *Fleet) RunDeployment(ctx context.Context, deployment *appsv1.Deployment) error {
	pod := deployment.Spec.Template.Spec
	var args []string
	for _, arg := range pod.Containers[0].Args {
		args = append(args, strings.ReplaceAll(arg, "$(POD_NAMESPACE)", deployment.Namespace))
	}
	account := client.ObjectKey{Namespace: deployment.Namespace, Name: pod.ServiceAccountName}
	return f.runOperator(ctx, Operator, f.bin.Path("plimsoll-operator"), f.OperatorMetrics, account, args)
}

// ApplyKueueDeployment applies the Deployment and the ConfigMap of Kueue's own manifests to
// the hub, where Kueue runs outside of the cluster and without them.
func (f *Fleet) ApplyKueueDeployment(ctx context.Context) error {
	manifests, err := f.kueueManifests(ctx)
	if err != nil {
		return err
	}
	var kept []string
	for _, document := range strings.Split(manifests, "\n---\n") {
		var object struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return fmt.Errorf("read Kueue's manifests: %w", err)
		}
		if object.Kind == "Deployment" || object.Kind == "ConfigMap" {
			kept = append(kept, document)
		}
	}
	return f.Hub.Apply(ctx, strings.Join(kept, "\n---\n"))
}

// ApplyOCMCRDs applies OCM's CRDs of an API group, such as addon or work, to the hub.
func (f *Fleet) ApplyOCMCRDs(ctx context.Context, group string) error {
	return f.Hub.applyOCMCRDs(ctx, group)
}

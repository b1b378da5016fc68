package connect

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
)

// configAnnotation of Kueue's ConfigMap is the time at which connect last wrote it. The pods
// of Kueue have the time of the configuration that connect started them with.
const configAnnotation = "plimsoll.dev/kueue-configuration"

// applyDispatcher sets the dispatcher in Kueue's configuration, and restarts Kueue, which
// reads its configuration at the start. The ConfigMap has the time at which connect wrote it,
// and the Deployment the time for which it was restarted, so another run repeats a restart
// that failed, and no other. The text of the configuration would not do:
//
//  1. connect sets the dispatcher and restarts Kueue.
//  2. An upgrade of Kueue's release resets the configuration, and Kueue restarts with it.
//  3. connect sets the dispatcher again. The text is that of step 1, and Kueue must restart.
func applyDispatcher(ctx context.Context, a *command.App, hub client.Client, o connectOptions) error {
	config, key := &corev1.ConfigMap{}, client.ObjectKey{Namespace: o.kueue, Name: installation.KueueConfigMap}
	err := hub.Get(ctx, key, config)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("ConfigMap %s does not exist: set --kueue-namespace, or set multiKueue.dispatcherName in Kueue's configuration yourself", key)
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", key, err)
	}
	before := config.DeepCopy()
	changed, err := installation.SetDispatcherIn(config, o.dispatcher)
	switch {
	case err != nil:
		return fmt.Errorf("ConfigMap %s: %w", key, err)
	case changed && o.dryRun:
		_, _ = fmt.Fprintf(a.Out, "hub: would set multiKueue.dispatcherName in ConfigMap %s to %s, and restart Kueue\n", key, o.dispatcher)
		return nil
	case changed:
		if config.Annotations == nil {
			config.Annotations = map[string]string{}
		}
		config.Annotations[configAnnotation] = a.Now().UTC().Format(time.RFC3339Nano)
		if err := hub.Patch(ctx, config, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(installation.FieldManager)); err != nil {
			return fmt.Errorf("ConfigMap %s: %w", key, err)
		}
		_, _ = fmt.Fprintf(a.Out, "hub: ConfigMap %s names the dispatcher %s\n", key, o.dispatcher)
	default:
		_, _ = fmt.Fprintf(a.Out, "hub: ConfigMap %s already names the dispatcher %s\n", key, o.dispatcher)
	}
	if changed && before.Labels[installation.ManagedByLabel] == "Helm" {
		_, _ = fmt.Fprintf(a.ErrOut, "warning: Helm writes ConfigMap %s: set the dispatcher in the values of Kueue's release too, or its next upgrade undoes this\n", key)
	}
	if err := restartKueue(ctx, a, hub, o, config.Annotations[configAnnotation]); err != nil {
		return fmt.Errorf("restart Kueue: %w; then run connect again", err)
	}
	return nil
}

// restartKueue restarts Kueue unless connect restarted it after it wrote the ConfigMap. written
// is the time of that write, and is empty if connect never wrote the ConfigMap. A changed
// annotation of the pods starts a rollout.
func restartKueue(ctx context.Context, a *command.App, hub client.Client, o connectOptions, written string) error {
	if written == "" {
		return nil
	}
	deployment, key := &appsv1.Deployment{}, client.ObjectKey{Namespace: o.kueue, Name: installation.KueueDeployment}
	if err := hub.Get(ctx, key, deployment); err != nil {
		return fmt.Errorf("Deployment %s: %w", key, err)
	}
	if deployment.Spec.Template.Annotations[configAnnotation] == written {
		return nil
	}
	if o.dryRun {
		_, _ = fmt.Fprintf(a.Out, "hub: would restart Deployment %s\n", key)
		return nil
	}
	before := deployment.DeepCopy()
	if deployment.Spec.Template.Annotations == nil {
		deployment.Spec.Template.Annotations = map[string]string{}
	}
	deployment.Spec.Template.Annotations[configAnnotation] = written
	if err := hub.Patch(ctx, deployment, client.MergeFrom(before), client.FieldOwner(installation.FieldManager)); err != nil {
		return fmt.Errorf("Deployment %s: %w", key, err)
	}
	_, _ = fmt.Fprintf(a.Out, "hub: Deployment %s restarts with this configuration\n", key)
	return nil
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	kueueConfigMap  = "kueue-manager-config"
	kueueDeployment = "kueue-controller-manager"
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
func (a *app) applyDispatcher(ctx context.Context, hub client.Client, o connectOptions) error {
	config, key := &corev1.ConfigMap{}, client.ObjectKey{Namespace: o.kueue, Name: kueueConfigMap}
	err := hub.Get(ctx, key, config)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("ConfigMap %s does not exist: set --kueue-namespace, or set multiKueue.dispatcherName in Kueue's configuration yourself", key)
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", key, err)
	}
	before := config.DeepCopy()
	changed, err := setDispatcherIn(config, o.dispatcher)
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
		config.Annotations[configAnnotation] = a.now().UTC().Format(time.RFC3339Nano)
		if err := hub.Patch(ctx, config, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(connectManager)); err != nil {
			return fmt.Errorf("ConfigMap %s: %w", key, err)
		}
		_, _ = fmt.Fprintf(a.Out, "hub: ConfigMap %s names the dispatcher %s\n", key, o.dispatcher)
	default:
		_, _ = fmt.Fprintf(a.Out, "hub: ConfigMap %s already names the dispatcher %s\n", key, o.dispatcher)
	}
	if changed && before.Labels[managedByLabel] == "Helm" {
		_, _ = fmt.Fprintf(a.ErrOut, "warning: Helm writes ConfigMap %s: set the dispatcher in the values of Kueue's release too, or its next upgrade undoes this\n", key)
	}
	if err := a.restartKueue(ctx, hub, o, config.Annotations[configAnnotation]); err != nil {
		return fmt.Errorf("restart Kueue: %w; then run connect again", err)
	}
	return nil
}

// setDispatcherIn sets the dispatcher in each Configuration of Kueue in a ConfigMap. It
// returns whether the ConfigMap changed.
func setDispatcherIn(config *corev1.ConfigMap, name string) (changed bool, err error) {
	found := false
	for file, text := range config.Data {
		set, err := setDispatcher(text, name)
		if errors.Is(err, errOtherConfiguration) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", file, err)
		}
		found, changed, config.Data[file] = true, changed || set != text, set
	}
	if !found {
		return false, errors.New("has no Configuration of Kueue")
	}
	return changed, nil
}

// restartKueue restarts Kueue unless connect restarted it after it wrote the ConfigMap. written
// is the time of that write, and is empty if connect never wrote the ConfigMap. A changed
// annotation of the pods starts a rollout.
func (a *app) restartKueue(ctx context.Context, hub client.Client, o connectOptions, written string) error {
	if written == "" {
		return nil
	}
	deployment, key := &appsv1.Deployment{}, client.ObjectKey{Namespace: o.kueue, Name: kueueDeployment}
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
	if err := hub.Patch(ctx, deployment, client.MergeFrom(before), client.FieldOwner(connectManager)); err != nil {
		return fmt.Errorf("Deployment %s: %w", key, err)
	}
	_, _ = fmt.Fprintf(a.Out, "hub: Deployment %s restarts with this configuration\n", key)
	return nil
}

// errOtherConfiguration means that a text is not a Configuration of Kueue.
var errOtherConfiguration = errors.New("not a Configuration of Kueue")

// parseConfiguration parses a Configuration of Kueue. root is its mapping.
func parseConfiguration(text string) (document, root *yaml.Node, err error) {
	document = &yaml.Node{}
	if err := yaml.Unmarshal([]byte(text), document); err != nil {
		return nil, nil, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, nil, errOtherConfiguration
	}
	root = document.Content[0]
	if kind := fieldOf(root, "kind"); kind == nil || kind.Value != "Configuration" {
		return nil, nil, errOtherConfiguration
	}
	return document, root, nil
}

// dispatcherIn returns the dispatcher that the Configurations of Kueue in a ConfigMap name. It is
// empty if they name none.
func dispatcherIn(config *corev1.ConfigMap) (string, error) {
	for _, file := range slices.Sorted(maps.Keys(config.Data)) {
		_, root, err := parseConfiguration(config.Data[file])
		if errors.Is(err, errOtherConfiguration) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		if section := fieldOf(root, "multiKueue"); section != nil {
			if name := fieldOf(section, "dispatcherName"); name != nil && name.Value != "" {
				return name.Value, nil
			}
		}
	}
	return "", nil
}

// setDispatcher sets multiKueue.dispatcherName in a Configuration of Kueue. Comments and the
// order of fields stay. It returns the text unchanged if the dispatcher is set.
func setDispatcher(text, name string) (string, error) {
	document, root, err := parseConfiguration(text)
	if err != nil {
		return "", err
	}
	section := fieldOf(root, "multiKueue")
	if section == nil {
		section = &yaml.Node{Kind: yaml.MappingNode}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "multiKueue"}, section)
	}
	if section.Kind != yaml.MappingNode { // such as "multiKueue:" without a value
		*section = yaml.Node{Kind: yaml.MappingNode}
	}
	switch value := fieldOf(section, "dispatcherName"); {
	case value == nil:
		section.Content = append(section.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "dispatcherName"}, &yaml.Node{Kind: yaml.ScalarNode, Value: name})
	case value.Value == name:
		return text, nil
	default:
		value.Value = name
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(document), encoder.Close()); err != nil {
		return "", err
	}
	return b.String(), nil
}

// fieldOf returns the value of a field, or nil.
func fieldOf(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}

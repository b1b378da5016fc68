package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadDispatcher returns the dispatcher in Kueue's configuration. It is empty if the
// configuration names none. The error of the API server stays as it is.
func ReadDispatcher(ctx context.Context, c client.Client, namespace string) (string, error) {
	config := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: KueueConfigMap}, config); err != nil {
		return "", err
	}
	name, err := dispatcherIn(config)
	if err != nil {
		return "", fmt.Errorf("ConfigMap %s/%s: %w", namespace, KueueConfigMap, err)
	}
	return name, nil
}

// Names of Kueue's objects on the hub.
const (
	KueueConfigMap  = "kueue-manager-config"
	KueueDeployment = "kueue-controller-manager"
)

// SetDispatcherIn sets the dispatcher in each Configuration of Kueue in a ConfigMap. It
// returns whether the ConfigMap changed.
func SetDispatcherIn(config *corev1.ConfigMap, name string) (changed bool, err error) {
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

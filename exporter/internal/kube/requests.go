package kube

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// requestTimeout limits a single read request.
const requestTimeout = 10 * time.Second

// ReadConfigMapKey reads a key of a ConfigMap once. It requires the permission get on the
// ConfigMap.
func ReadConfigMapKey(ctx context.Context, config *rest.Config, namespace, name, key string) (string, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("create a client for the API server: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	object, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("ConfigMap %s/%s: %w", namespace, name, err)
	}
	text, found, err := unstructured.NestedString(object.Object, "data", key)
	if err != nil {
		return "", fmt.Errorf("ConfigMap %s/%s: key %s: %w", namespace, name, key, err)
	}
	if !found {
		return "", fmt.Errorf("ConfigMap %s/%s has no key %s", namespace, name, key)
	}
	return text, nil
}

// CountPods counts the pods of a node once. It requires the permission list on pods.
func CountPods(ctx context.Context, config *rest.Config, node string) (int, error) {
	client, err := metadata.NewForConfig(metadata.ConfigFor(config))
	if err != nil {
		return 0, fmt.Errorf("create a client for the API server: %w", err)
	}
	l, err := client.Resource(pods).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return 0, fmt.Errorf("list the node's pods: %w", err)
	}
	return len(l.Items), nil
}

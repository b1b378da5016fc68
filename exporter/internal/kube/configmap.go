package kube

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// ConfigMap reads one key of a ConfigMap, once. The account needs get on that one
// ConfigMap.
func ConfigMap(ctx context.Context, config *rest.Config, namespace, name, key string) (string, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("a client of the API server: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	object, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("ConfigMap %s/%s: %w", namespace, name, err)
	}
	text, found, err := unstructured.NestedString(object.Object, "data", key)
	if err != nil || !found {
		return "", fmt.Errorf("ConfigMap %s/%s has no %s", namespace, name, key)
	}
	return text, nil
}

package hubstate

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// AdmissionCheck reads an AdmissionCheck. It is nil if it does not exist.
func AdmissionCheck(ctx context.Context, reader client.Reader, name string) (*kueue.AdmissionCheck, error) {
	check := &kueue.AdmissionCheck{}
	found, err := Find(ctx, reader, client.ObjectKey{Name: name}, check)
	if !found {
		return nil, err
	}
	return check, nil
}

// MultiKueueConfig reads a MultiKueueConfig. It is nil if it does not exist.
func MultiKueueConfig(ctx context.Context, reader client.Reader, name string) (*kueue.MultiKueueConfig, error) {
	config := &kueue.MultiKueueConfig{}
	found, err := Find(ctx, reader, client.ObjectKey{Name: name}, config)
	if !found {
		return nil, err
	}
	return config, nil
}

// MultiKueueCluster reads a MultiKueueCluster. It is nil if it does not exist.
func MultiKueueCluster(ctx context.Context, reader client.Reader, name string) (*kueue.MultiKueueCluster, error) {
	cluster := &kueue.MultiKueueCluster{}
	found, err := Find(ctx, reader, client.ObjectKey{Name: name}, cluster)
	if !found {
		return nil, err
	}
	return cluster, nil
}

// MultiKueueClusters lists all MultiKueueClusters, by name.
func MultiKueueClusters(ctx context.Context, reader client.Reader) (map[string]*kueue.MultiKueueCluster, error) {
	list := &kueue.MultiKueueClusterList{}
	if err := reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list MultiKueueClusters: %w", err)
	}
	clusters := make(map[string]*kueue.MultiKueueCluster, len(list.Items))
	for i := range list.Items {
		clusters[list.Items[i].Name] = &list.Items[i]
	}
	return clusters, nil
}

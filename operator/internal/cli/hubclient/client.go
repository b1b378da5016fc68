// Package hubclient connects to the hub, and reads what several commands show.
package hubclient

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
)

var (
	// Scheme has the kinds that commands read and write.
	Scheme = runtime.NewScheme()
	// RESTMapper knows the kinds that commands read and write. A static mapper saves the requests for
	// discovery.
	RESTMapper = meta.NewDefaultRESTMapper(nil)
)

func init() {
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clusterv1.Install, clusterv1alpha1.Install, clusterv1beta1.Install, addonv1alpha1.Install, workv1.Install, kueue.AddToScheme,
		appsv1.AddToScheme, authenticationv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, schedulingv1.AddToScheme} {
		utilruntime.Must(add(Scheme))
	}
	for kind, scope := range map[schema.GroupVersionKind]meta.RESTScope{
		kueue.SchemeGroupVersion.WithKind("Workload"):                                      meta.RESTScopeNamespace,
		kueue.SchemeGroupVersion.WithKind("AdmissionCheck"):                                meta.RESTScopeRoot,
		appsv1.SchemeGroupVersion.WithKind("Deployment"):                                   meta.RESTScopeNamespace,
		coordinationv1.SchemeGroupVersion.WithKind("Lease"):                                meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("ConfigMap"):                                    meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("Pod"):                                          meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("Secret"):                                       meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("Service"):                                      meta.RESTScopeNamespace,
		rbacv1.SchemeGroupVersion.WithKind("ClusterRole"):                                  meta.RESTScopeRoot,
		rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"):                           meta.RESTScopeRoot,
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"):                               meta.RESTScopeNamespace,
		schema.GroupVersion(clusterv1beta1.GroupVersion).WithKind("Placement"):             meta.RESTScopeNamespace,
		kueue.SchemeGroupVersion.WithKind("ClusterQueue"):                                  meta.RESTScopeRoot,
		kueue.SchemeGroupVersion.WithKind("LocalQueue"):                                    meta.RESTScopeNamespace,
		kueue.SchemeGroupVersion.WithKind("WorkloadPriorityClass"):                         meta.RESTScopeRoot,
		schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"):                          meta.RESTScopeRoot,
		kueue.SchemeGroupVersion.WithKind("ResourceFlavor"):                                meta.RESTScopeRoot,
		kueue.SchemeGroupVersion.WithKind("MultiKueueConfig"):                              meta.RESTScopeRoot,
		kueue.SchemeGroupVersion.WithKind("MultiKueueCluster"):                             meta.RESTScopeRoot,
		v1alpha1.GroupVersion.WithKind("MetricsSource"):                                    meta.RESTScopeRoot,
		v1alpha1.GroupVersion.WithKind("ScoringPolicy"):                                    meta.RESTScopeRoot,
		v1alpha1.GroupVersion.WithKind("PlacementGate"):                                    meta.RESTScopeRoot,
		v1alpha1.GroupVersion.WithKind("CapacityPolicy"):                                   meta.RESTScopeRoot,
		v1alpha1.GroupVersion.WithKind("TrialPolicy"):                                      meta.RESTScopeRoot,
		v1alpha1.GroupVersion.WithKind("ReclaimPolicy"):                                    meta.RESTScopeRoot,
		v1alpha1.GroupVersion.WithKind("JobProfile"):                                       meta.RESTScopeNamespace,
		kueue.SchemeGroupVersion.WithKind("Cohort"):                                        meta.RESTScopeRoot,
		schema.GroupVersion(clusterv1.GroupVersion).WithKind("ManagedCluster"):             meta.RESTScopeRoot,
		schema.GroupVersion(clusterv1alpha1.GroupVersion).WithKind("AddOnPlacementScore"):  meta.RESTScopeNamespace,
		schema.GroupVersion(clusterv1beta1.GroupVersion).WithKind("PlacementDecision"):     meta.RESTScopeNamespace,
		schema.GroupVersion(addonv1alpha1.GroupVersion).WithKind("ClusterManagementAddOn"): meta.RESTScopeRoot,
		schema.GroupVersion(addonv1alpha1.GroupVersion).WithKind("ManagedClusterAddOn"):    meta.RESTScopeNamespace,
		schema.GroupVersion(workv1.GroupVersion).WithKind("ManifestWork"):                  meta.RESTScopeNamespace,
	} {
		RESTMapper.Add(kind, scope)
	}
}

// defaultHost is the API server that client-go assumes without any configuration.
const defaultHost = "localhost:8080"

// RESTConfig returns the configuration of the hub from the command line and the kubeconfig.
func RESTConfig(a *command.App) (*rest.Config, error) {
	config, err := a.Flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("can't find the hub: %w (set --kubeconfig or KUBECONFIG)", err)
	}
	if raw, err := a.Flags.ToRawKubeConfigLoader().RawConfig(); err == nil && len(raw.Clusters) == 0 && strings.Contains(config.Host, defaultHost) {
		return nil, errors.New("no hub is configured: set --kubeconfig or KUBECONFIG")
	}
	return config, nil
}

// WithToken returns an App whose requests to the hub have a bearer token, and no other credential of the command line, of
// the kubeconfig or of a pod.
func WithToken(a *command.App, token string) *command.App {
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.Context, flags.ClusterName, flags.Namespace, flags.Timeout = a.Flags.KubeConfig, a.Flags.Context, a.Flags.ClusterName, a.Flags.Namespace, a.Flags.Timeout
	flags.APIServer, flags.CAFile, flags.TLSServerName, flags.Insecure = a.Flags.APIServer, a.Flags.CAFile, a.Flags.TLSServerName, a.Flags.Insecure
	flags.WrapConfigFn = func(c *rest.Config) *rest.Config {
		anonymous := rest.AnonymousClientConfig(c)
		anonymous.BearerToken = token
		return anonymous
	}
	app := *a
	app.Flags = flags
	return &app
}

// Connect returns a client of the hub and the namespace of the command line or kubeconfig.
func Connect(a *command.App) (client.Client, string, error) {
	config, err := RESTConfig(a)
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := a.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err
	}
	c, err := client.New(config, client.Options{Scheme: Scheme, Mapper: RESTMapper})
	return c, namespace, err
}

// Reading adds the name of the objects and a remedy to an error of reading them. objects
// is a kind and name, or a plural kind.
func Reading(objects string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %w (bind your user to the ClusterRole plimsoll-explainer)", objects, err)
	case apierrors.IsNotFound(err) && NoSuchResource(err):
		return fmt.Errorf("%s: this cluster does not serve this resource: check that the kubeconfig points to the hub", objects)
	}
	return fmt.Errorf("%s: %w", objects, err)
}

// NoSuchResource reports whether a NotFound error means that the kind is not served. Only
// if an object does not exist, the error names the object.
func NoSuchResource(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

// OperatorName is the name of the operator's Deployment and Lease.
const OperatorName = "plimsoll-operator"

// ListManagedClusters returns the accepted ManagedClusters of the hub.
func ListManagedClusters(ctx context.Context, a *command.App) ([]clusterv1.ManagedCluster, error) {
	c, _, err := Connect(a)
	if err != nil {
		return nil, err
	}
	clusters, err := hubstate.ManagedClusters(ctx, c)
	return clusters, Reading("ManagedClusters", err)
}

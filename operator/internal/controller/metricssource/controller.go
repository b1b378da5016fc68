// Package metricssource makes MetricsSources askable: it reads what they refer to,
// builds their clients, and says in their status whether they answer.
package metricssource

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dial"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

const (
	healthyPeriod = 30 * time.Second
	brokenPeriod  = 5 * time.Second
	// atATime is how many sources are looked at: those that don't answer must not
	// keep the others waiting.
	atATime = 32
)

// Options of the controller.
type Options struct {
	Sources *query.Sources // filled by this controller
	Metrics *query.Metrics
	// Namespace of the operator: the only one whose Secrets are read.
	Namespace string
	// CredentialsDir holds the files that auth.authorization.credentialsFile may
	// name; empty allows none.
	CredentialsDir string
}

// Reconciler of MetricsSources.
type Reconciler struct {
	Options
	client   client.Client
	recorder events.EventRecorder

	failing chan event.GenericEvent // sources that stopped answering just now

	mu    sync.Mutex
	built map[string]*built
}

// built is a client and what it was made from.
type built struct {
	client  *query.Client
	spec    v1alpha1.MetricsSourceSpec
	secrets map[v1alpha1.SecretKeyReference]string
}

// +kubebuilder:rbac:groups=plimsoll.dev,resources=metricssources,verbs=get;list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=metricssources/status,verbs=get;patch;update
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=plimsoll-system,resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller to the manager.
func Setup(mgr ctrl.Manager, opts Options) error {
	r := &Reconciler{
		Options: opts, client: mgr.GetClient(), recorder: mgr.GetEventRecorder("plimsoll-source"), built: map[string]*built{},
		failing: make(chan event.GenericEvent, 1024),
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("metricssource").
		For(&v1alpha1.MetricsSource{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.sourcesWithSecret)).
		WatchesRawSource(source.Channel(r.failing, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: atATime}).
		Complete(r)
}

// Reconcile one source: read what it refers to, build its client, see whether it answers.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	src := &v1alpha1.MetricsSource{}
	if err := r.client.Get(ctx, req.NamespacedName, src); apierrors.IsNotFound(err) {
		r.forget(req.Name)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	c, err := r.build(ctx, src)
	if err != nil {
		r.Sources.SetError(src.Name, err)
		return reconcile.Result{RequeueAfter: brokenPeriod}, r.report(ctx, src, unusable(err))
	}
	version, err := c.Check(ctx)
	after := healthyPeriod
	if err != nil {
		after = brokenPeriod
	}
	return reconcile.Result{RequeueAfter: after}, r.report(ctx, src, observed{version: version, err: err, health: c.Health()})
}

// build returns the source's client, a new one when the spec or a Secret has changed.
func (r *Reconciler) build(ctx context.Context, src *v1alpha1.MetricsSource) (*query.Client, error) {
	secrets, err := r.readSecrets(ctx, &src.Spec)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.built[src.Name]; b != nil && maps.Equal(b.secrets, secrets) && reflect.DeepEqual(b.spec, src.Spec) {
		r.Sources.Set(dial.SourceInfo(src), b.client)
		return b.client, nil
	}
	cfg, err := dial.ClientConfig(src, secrets, r.CredentialsDir)
	if err != nil {
		return nil, err
	}
	cfg.Metrics, cfg.Clusters, cfg.OnFailure = r.Metrics, r.clusters, r.wake(src.Name)
	c, err := query.New(cfg)
	if err != nil {
		return nil, err
	}
	r.built[src.Name] = &built{client: c, spec: *src.Spec.DeepCopy(), secrets: secrets}
	r.Sources.Set(dial.SourceInfo(src), c)
	return c, nil
}

// wake has a source looked at before its time.
func (r *Reconciler) wake(name string) func() {
	e := event.GenericEvent{Object: &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	return func() {
		select {
		case r.failing <- e:
		default: // so many wait that its time comes as soon
		}
	}
}

func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	delete(r.built, name)
	r.mu.Unlock()
	r.Sources.Delete(name)
	r.Metrics.DeleteSource(name)
}

// clusters that have an endpoint of their own.
func (r *Reconciler) clusters(ctx context.Context) ([]string, error) {
	var list clusterv1.ManagedClusterList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ManagedClusters: %w", err)
	}
	var names []string
	for i := range list.Items {
		if c := &list.Items[i]; c.Spec.HubAcceptsClient && c.DeletionTimestamp == nil {
			names = append(names, c.Name)
		}
	}
	return names, nil
}

func (r *Reconciler) readSecrets(ctx context.Context, spec *v1alpha1.MetricsSourceSpec) (map[v1alpha1.SecretKeyReference]string, error) {
	values := map[v1alpha1.SecretKeyReference]string{}
	for _, ref := range dial.SecretReferences(spec) {
		secret := &corev1.Secret{}
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: ref.Name}, secret); err != nil {
			if apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("create Secret %s/%s with the key %q", r.Namespace, ref.Name, ref.Key)
			}
			return nil, fmt.Errorf("read Secret %s/%s: %w", r.Namespace, ref.Name, err)
		}
		value, ok := secret.Data[ref.Key]
		if !ok {
			return nil, fmt.Errorf("add the key %q to Secret %s/%s", ref.Key, r.Namespace, ref.Name)
		}
		values[ref] = string(value)
	}
	return values, nil
}

func (r *Reconciler) sourcesWithSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	if secret.GetNamespace() != r.Namespace {
		return nil
	}
	var list v1alpha1.MetricsSourceList
	if err := r.client.List(ctx, &list); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		for _, ref := range dial.SecretReferences(&list.Items[i].Spec) {
			if ref.Name == secret.GetName() {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
				break
			}
		}
	}
	return requests
}

// Package metricssource reconciles MetricsSources: it reads their Secrets, builds their
// query clients and reports in their status whether they can be queried.
package metricssource

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/config"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/logging"
	"plimsoll.dev/plimsoll/operator/internal/fairqueue"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/dial"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

const (
	healthyPeriod = 30 * time.Second
	failedPeriod  = 5 * time.Second
	// maxConcurrentChecks is high because a check of an unresponsive source lasts as
	// long as its timeout, and must not delay the checks of the others.
	maxConcurrentChecks = 32
)

// Options of the controller.
type Options struct {
	// Sources is the registry that the controller fills with query clients.
	Sources *query.Sources
	// Metrics of the query clients.
	Metrics *query.Metrics
	// Namespace of the operator. Secrets of other namespaces are never read.
	Namespace string
	// CredentialsDir is the directory of the files that
	// auth.authorization.credentialsFile may name. If it is empty, no file is allowed.
	CredentialsDir string
	// AllowLoopback permits sources at loopback addresses.
	AllowLoopback bool
	// Transport replaces the network of the query clients, for tests and simulations. Nil means HTTP.
	Transport http.RoundTripper
}

// Reconciler reconciles MetricsSources.
type Reconciler struct {
	Options
	client   client.Client
	recorder events.EventRecorder

	// failing receives sources with a query that has just failed.
	failing chan event.GenericEvent

	mu      sync.Mutex
	clients map[string]*cachedClient // by source name
}

// cachedClient is a query client with the spec and Secrets from which it was built.
type cachedClient struct {
	client  *query.Client
	spec    v1alpha1.MetricsSourceSpec
	secrets map[v1alpha1.SecretKeyReference]string
}

// +kubebuilder:rbac:groups=plimsoll.dev,resources=metricssources,verbs=list;watch
// +kubebuilder:rbac:groups=plimsoll.dev,resources=metricssources/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.open-cluster-management.io,resources=managedclusters,verbs=list;watch
// +kubebuilder:rbac:groups="",namespace=plimsoll-system,resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller to the manager.
func Setup(mgr ctrl.Manager, opts Options) error {
	r := &Reconciler{
		Options: opts, client: mgr.GetClient(), recorder: mgr.GetEventRecorder("plimsoll-source"), clients: map[string]*cachedClient{},
		failing: make(chan event.GenericEvent, 1024),
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("metricssource").
		For(&v1alpha1.MetricsSource{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.sourcesWithSecret)).
		WatchesRawSource(source.Channel(r.failing, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrentChecks, RateLimiter: fairqueue.RetryLimiter(timing.MaxRetryDelay), LogConstructor: logging.ForRequests(mgr, "metricssource", "source")}).
		Complete(r)
}

// Reconcile reads the Secrets of a source, builds its client, and checks whether the
// source can be queried.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	src := &v1alpha1.MetricsSource{}
	if err := r.client.Get(ctx, req.NamespacedName, src); apierrors.IsNotFound(err) {
		r.deleteClient(req.Name)
		log.FromContext(ctx).Info("Source deleted")
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	c, err := r.ensureClient(ctx, src)
	if err != nil {
		r.Sources.SetUnusable(dial.SourceInfo(src), err)
		return r.report(ctx, src, observation{configErr: err}, failedPeriod)
	}
	version, err := check(ctx, c)
	after := healthyPeriod
	if err != nil {
		after = failedPeriod
	}
	return r.report(ctx, src, observation{version: version, queryErr: err, health: c.Health()}, after)
}

// check checks the source within timing.MaxRound: a check consists of several queries, and with one
// endpoint per cluster, each turn of the endpoints may last as long as the timeout.
func check(ctx context.Context, c *query.Client) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timing.MaxRound)
	defer cancel()
	return c.Check(ctx)
}

// report writes the status and returns when to look at the source again.
func (r *Reconciler) report(ctx context.Context, src *v1alpha1.MetricsSource, o observation, after time.Duration) (reconcile.Result, error) {
	if err := r.writeStatus(ctx, src, o); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// ensureClient returns the client of the source and registers it. It builds a new
// client if the spec or a Secret changed.
func (r *Reconciler) ensureClient(ctx context.Context, src *v1alpha1.MetricsSource) (*query.Client, error) {
	secrets, err := r.readSecrets(ctx, &src.Spec)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if cached := r.clients[src.Name]; cached != nil && maps.Equal(cached.secrets, secrets) && reflect.DeepEqual(cached.spec, src.Spec) {
		r.Sources.Set(dial.SourceInfo(src), cached.client)
		return cached.client, nil
	}
	cfg, err := dial.ClientConfig(src, secrets, r.CredentialsDir)
	if err != nil {
		return nil, err
	}
	cfg.Metrics, cfg.Clusters, cfg.OnFailure = r.Metrics, r.clusterNames, r.checkSoon(src.Name)
	cfg.AllowLoopback, cfg.Transport = r.AllowLoopback, r.Transport
	if dial.HasClusterCredentials(&src.Spec) {
		cfg.HTTPFor = r.clusterCredentials(src.Spec.DeepCopy())
	}
	c, err := query.New(cfg)
	if err != nil {
		return nil, err
	}
	r.clients[src.Name] = &cachedClient{client: c, spec: *src.Spec.DeepCopy(), secrets: secrets}
	r.Sources.Set(dial.SourceInfo(src), c)
	log.FromContext(ctx).Info("Query client built", "type", src.Spec.Type, "generation", src.Generation)
	return c, nil
}

// checkSoon returns a function that schedules a check of the source. It never blocks:
// if the channel is full, the periodic check comes about as soon.
func (r *Reconciler) checkSoon(name string) func() {
	e := event.GenericEvent{Object: &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	return func() {
		select {
		case r.failing <- e:
		default:
		}
	}
}

// deleteClient removes the client and the metrics of a source.
func (r *Reconciler) deleteClient(name string) {
	r.mu.Lock()
	delete(r.clients, name)
	r.mu.Unlock()
	r.Sources.Delete(name)
	r.Metrics.DeleteSource(name)
}

// clusterNames lists the clusters that have an endpoint in the topology PerCluster.
func (r *Reconciler) clusterNames(ctx context.Context) ([]string, error) {
	clusters, err := hubstate.ManagedClusters(ctx, r.client)
	if err != nil {
		return nil, err
	}
	return hubstate.SelectNames(clusters, nil)
}

// clusterCredentials returns a function that reads the credentials of a cluster. It reads
// them from the cache for each query, so that a changed Secret takes effect at once.
func (r *Reconciler) clusterCredentials(spec *v1alpha1.MetricsSourceSpec) func(context.Context, string) (config.HTTPClientConfig, error) {
	return func(ctx context.Context, cluster string) (config.HTTPClientConfig, error) {
		expanded, err := dial.ForCluster(spec, cluster)
		if err != nil {
			return config.HTTPClientConfig{}, err
		}
		secrets, err := r.readSecrets(ctx, expanded)
		if err != nil {
			return config.HTTPClientConfig{}, err
		}
		return dial.HTTPConfig(expanded, secrets, r.CredentialsDir)
	}
}

// readSecrets returns the values of all Secret keys that the spec references, except those
// that depend on the cluster. If one is missing or must not be used, the error states what
// to change.
func (r *Reconciler) readSecrets(ctx context.Context, spec *v1alpha1.MetricsSourceSpec) (map[v1alpha1.SecretKeyReference]string, error) {
	values := map[v1alpha1.SecretKeyReference]string{}
	for _, use := range dial.SecretUses(spec) {
		ref := use.Reference
		if strings.Contains(ref.Name, query.ClusterPlaceholder) {
			continue
		}
		secret := &corev1.Secret{}
		found, err := hubstate.Find(ctx, r.client, client.ObjectKey{Namespace: r.Namespace, Name: ref.Name}, secret)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fmt.Errorf("Secret %s/%s does not exist: create it with the key %q and the label %s: \"true\"", r.Namespace, ref.Name, ref.Key, v1alpha1.SourceSecretLabel)
		}
		if err := dial.CheckSecret(secret.Labels, secret.Annotations, use.Host); err != nil {
			return nil, fmt.Errorf("Secret %s/%s can't be used: %w", r.Namespace, ref.Name, err)
		}
		value, ok := secret.Data[ref.Key]
		if !ok {
			return nil, fmt.Errorf("Secret %s/%s has no key %q: add it", r.Namespace, ref.Name, ref.Key)
		}
		values[ref] = string(value)
	}
	return values, nil
}

// sourcesWithSecret returns the sources that reference the Secret.
func (r *Reconciler) sourcesWithSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	if secret.GetNamespace() != r.Namespace {
		return nil
	}
	var list v1alpha1.MetricsSourceList
	if err := r.client.List(ctx, &list); err != nil {
		log.FromContext(ctx).Error(err, "Could not list MetricsSources of a changed Secret", "secret", client.ObjectKeyFromObject(secret))
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		for _, use := range dial.SecretUses(&list.Items[i].Spec) {
			if use.Reference.Name == secret.GetName() {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
				break
			}
		}
	}
	return requests
}

package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

var resourceClaims = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}

// resourceClaim has the fields of a ResourceClaim that the exporter uses.
type resourceClaim struct {
	Status struct {
		Allocation *struct {
			Devices struct {
				Results []allocationResult `json:"results"`
			} `json:"devices"`
		} `json:"allocation"`
	} `json:"status"`
}

// allocationResult is a device that kube-scheduler allocated to a claim.
type allocationResult struct {
	Driver           string                       `json:"driver"`
	Pool             string                       `json:"pool"`
	Device           string                       `json:"device"`
	ShareID          string                       `json:"shareID"`
	AdminAccess      bool                         `json:"adminAccess"`
	ConsumedCapacity map[string]resource.Quantity `json:"consumedCapacity"`
}

// ClaimReader knows the capacity of devices that several resource claims can allocate, and what the
// claims of the node's pods consume of it. It watches the ResourceSlices of the node, and reads
// each claim by name when the kubelet first reports it.
type ClaimReader struct {
	client      dynamic.Interface
	connections *http.Client // of client
	slices      *sliceWatcher
	queue       workqueue.TypedRateLimitingInterface[types.NamespacedName]
	log         *slog.Logger

	mu      sync.Mutex
	claims  map[types.NamespacedName]*claimEntry
	failing bool // a failure was logged, and its end was not
}

// claimEntry is what is known of a claim.
type claimEntry struct {
	wanted  []podmap.Claim // of the last call of Consumption
	results []allocationResult
	unknown string // why results is unknown; empty if it is known
	queued  bool
}

// NewClaimReader returns a ClaimReader for a node. Call Run.
func NewClaimReader(config *rest.Config, node string, log *slog.Logger) (*ClaimReader, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // a watch is unlimited; other requests have their own timeout
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for the API server: %w", err)
	}
	client, err := dynamic.NewForConfigAndClient(config, connections)
	if err != nil {
		return nil, fmt.Errorf("create a client for the API server: %w", err)
	}
	watcher, err := newSliceWatcher(client, node, log)
	if err != nil {
		return nil, err
	}
	return &ClaimReader{client: client, connections: connections, slices: watcher, log: log, claims: map[types.NamespacedName]*claimEntry{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry))}, nil
}

// Run watches and reads until ctx ends, and then closes its connections.
func (r *ClaimReader) Run(ctx context.Context) {
	defer closeConnections(r.connections)
	done := make(chan struct{})
	go func() { defer close(done); r.read(ctx) }()
	r.slices.informer.RunWithContext(ctx)
	<-done
}

// WaitForList waits for the first list of ResourceSlices. It returns false if ctx ends first.
func (r *ClaimReader) WaitForList(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), r.slices.informer.HasSynced)
}

// Reachable reports whether the last request to list or watch ResourceSlices succeeded.
func (r *ClaimReader) Reachable() bool { return r.slices.reachable.Load() }

// Devices returns the devices that several claims can allocate. ok is false until the node's
// ResourceSlices have been listed.
func (r *ClaimReader) Devices() (devices []podmap.SharedDevice, ok bool) { return r.slices.devices() }

// Consumption returns what each claim consumes of its device. The first call for a claim starts
// its reading, and later calls return the result. Other claims are dropped.
func (r *ClaimReader) Consumption(claims []podmap.Claim) map[podmap.Claim]podmap.Consumption {
	wanted := map[types.NamespacedName][]podmap.Claim{}
	for _, c := range claims {
		key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		wanted[key] = append(wanted[key], c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.claims {
		if wanted[key] == nil {
			delete(r.claims, key)
			r.queue.Forget(key)
		}
	}
	consumption := map[podmap.Claim]podmap.Consumption{}
	for key, list := range wanted {
		e := r.claims[key]
		if e == nil {
			e = &claimEntry{unknown: podmap.ClaimPending}
			r.claims[key] = e
		}
		e.wanted = list
		isComplete := true
		for _, c := range list {
			consumption[c] = e.consumption(c)
			isComplete = isComplete && consumption[c].Unknown == ""
		}
		if !isComplete && !e.queued {
			e.queued = true
			r.queue.Add(key)
		}
	}
	return consumption
}

// consumption returns what a claim consumes of its device. Without a share ID from the kubelet, all
// allocations of the device count.
func (e *claimEntry) consumption(c podmap.Claim) podmap.Consumption {
	if e.unknown != "" {
		return podmap.Consumption{Unknown: e.unknown}
	}
	invalid := podmap.Consumption{Unknown: podmap.ClaimInvalid}
	sum, isAllocated, isAdmin := map[string]float64{}, false, true
	for _, a := range e.results {
		if a.Driver != c.Driver || a.Pool != c.Pool || a.Device != c.Device || c.ShareID != "" && a.ShareID != c.ShareID {
			continue
		}
		isAllocated = true
		if a.AdminAccess {
			continue
		}
		isAdmin = false
		for name, quantity := range a.ConsumedCapacity {
			amount := quantity.AsApproximateFloat64()
			if !isPlausible(amount) {
				return invalid
			}
			sum[podmap.CapacityName(a.Driver, name)] += amount
		}
	}
	if !isAllocated {
		return invalid
	}
	return podmap.Consumption{Amounts: sum, AdminAccess: isAdmin}
}

// read reads claims until ctx ends.
func (r *ClaimReader) read(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	for {
		key, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		if r.readClaim(ctx, key) {
			r.queue.Forget(key)
		} else {
			r.queue.AddRateLimited(key)
		}
		r.queue.Done(key)
	}
}

// readClaim reads a claim. It returns false if the claim must be read again.
func (r *ClaimReader) readClaim(ctx context.Context, key types.NamespacedName) bool {
	results, unknown, err := r.allocationOf(ctx, key)
	if ctx.Err() != nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.claims[key]
	if e == nil {
		return true // no pod of the node has the claim anymore
	}
	r.logFailure(key, unknown, err)
	e.results, e.unknown = results, unknown
	isIncomplete := slices.ContainsFunc(e.wanted, func(c podmap.Claim) bool { return e.consumption(c).Unknown != "" })
	e.queued = isIncomplete
	return !isIncomplete
}

// allocationOf reads the allocation of a claim. unknown is the reason of an error.
func (r *ClaimReader) allocationOf(ctx context.Context, key types.NamespacedName) (results []allocationResult, unknown string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	object, err := r.client.Resource(resourceClaims).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return nil, podmap.ClaimForbidden, err
	case apierrors.IsNotFound(err):
		return nil, podmap.ClaimNotFound, err
	case err != nil:
		return nil, podmap.ClaimUnreachable, err
	}
	claim := &resourceClaim{}
	if err := decodeObject(object, claim); err != nil {
		return nil, podmap.ClaimInvalid, err
	}
	if claim.Status.Allocation == nil {
		return nil, podmap.ClaimInvalid, errors.New("it is not allocated")
	}
	return claim.Status.Allocation.Devices.Results, "", nil
}

// logFailure logs a failure unless a claim failed for the same reason before, and its end when no
// claim fails anymore. The caller holds the lock.
func (r *ClaimReader) logFailure(key types.NamespacedName, unknown string, err error) {
	fails := func(isReason func(reason string) bool) bool {
		for other, e := range r.claims {
			if isReason(e.unknown) && (other != key || err != nil) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil && r.failing && !fails(func(reason string) bool { return reason != "" && reason != podmap.ClaimPending }):
		r.failing = false
		r.log.Info("resource claims can be read again")
	case err != nil && !fails(func(reason string) bool { return reason == unknown }):
		r.failing = true
		r.log.Warn("cannot read a resource claim; its device has no shares of claims (plimsoll_exporter_unknown_claims)", "claim", key.String(), "reason", unknown, "err", err)
	}
}

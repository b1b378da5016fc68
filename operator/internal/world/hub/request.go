package hub

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Request describes a request of a process to the API server.
type Request struct {
	// Verb is get, list, create, update, patch, apply or delete.
	Verb string
	Kind schema.GroupVersionKind
	// Key of the object. A list has no name.
	Key types.NamespacedName
	// Subresource is "status" or empty.
	Subresource string
}

// Fault is what goes wrong with a request. The zero value is a request that the API server serves
// at once.
type Fault struct {
	// Before is returned instead of serving the request.
	Before error
	// After is returned although the API server has served the request: the response is lost.
	After error
	// Latency is the duration of the request. The API server serves it after half of that.
	Latency time.Duration
}

// serve runs a request of the process. It fails if the context or the process has ended.
func (v *View) serve(ctx context.Context, r Request, do func() error) error {
	if err := v.alive(ctx); err != nil {
		return err
	}
	var fault Fault
	if v.opts.Intercept != nil {
		fault = v.opts.Intercept(r)
	}
	if err := v.wait(ctx, fault.Latency/2); err != nil {
		return err
	}
	err := fault.Before
	if err == nil {
		if err = do(); err == nil && r.Verb != "get" && r.Verb != "list" {
			v.countWrite(r)
		}
	}
	if wait := v.wait(ctx, fault.Latency-fault.Latency/2); wait != nil {
		return wait
	}
	if err == nil {
		err = fault.After
	}
	return err
}

// wait lets time pass.
func (v *View) wait(ctx context.Context, latency time.Duration) error {
	if latency <= 0 {
		return nil
	}
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return v.alive(ctx)
	case <-ctx.Done():
		return ctx.Err()
	case <-v.done:
		return ErrStopped
	}
}

func (v *View) alive(ctx context.Context) error {
	select {
	case <-v.done:
		return ErrStopped
	default:
		return ctx.Err()
	}
}

func (v *View) countWrite(r Request) {
	v.mu.Lock()
	v.writes[r.Kind.Kind]++
	v.mu.Unlock()
	if v.opts.OnWrite != nil {
		v.opts.OnWrite(r)
	}
}

// Writes returns the number of successful writes by kind, including those whose response was lost.
func (v *View) Writes() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	counts := make(map[string]int, len(v.writes))
	for kind, n := range v.writes {
		counts[kind] = n
	}
	return counts
}

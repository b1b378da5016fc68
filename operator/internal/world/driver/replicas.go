package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

const (
	// leaseDuration and retryPeriod are those of the product: a process that is lost has led for at most
	// leaseDuration, and the others look at the Lease about each second.
	leaseDuration = 15 * time.Second
	retryPeriod   = time.Second
	// restartDelay is the time from the end of a process that lost the Lease to the next start.
	restartDelay = 3 * time.Second
)

// errCutOff is what a process gets that does not reach the API server.
var errCutOff = errors.New("the API server of the hub is not reachable")

// lease is the Lease by which one of the processes leads.
type lease struct {
	mu      sync.Mutex
	record  resourcelock.LeaderElectionRecord
	renewed time.Time
}

// isFree reports whether a process may take the Lease.
func (l *lease) isFree() bool {
	return l.record.HolderIdentity == "" || time.Since(l.renewed) > leaseDuration
}

// connection is the connection of a process to the hub. A fault can cut it off.
type connection struct {
	mu       sync.Mutex
	cutUntil time.Time
	// done is closed when the process ends.
	done chan struct{}
	once sync.Once
}

func (c *connection) close() { c.once.Do(func() { close(c.done) }) }

// cut cuts the process off for a time.
func (c *connection) cut(lasts time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cutUntil = time.Now().Add(lasts)
}

// cutFor is for how long the process is still cut off.
func (c *connection) cutFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, time.Until(c.cutUntil))
}

// options add the connection to the options of a view: requests fail while it is cut, and events arrive
// after that.
func (c *connection) options(o hub.ViewOptions) hub.ViewOptions {
	delay, intercept := o.Delay, o.Intercept
	o.Delay = func(gvk schema.GroupVersionKind, key types.NamespacedName, version string) time.Duration {
		return c.cutFor() + delay(gvk, key, version)
	}
	o.Intercept = func(r hub.Request) hub.Fault {
		if c.cutFor() > 0 {
			return hub.Fault{Before: errCutOff}
		}
		return intercept(r)
	}
	return o
}

// lock is the Lease as one process sees it. It implements resourcelock.Interface.
type lock struct {
	*lease
	*connection
	name  string
	world *world.World
	// hasLed is set when the process has had the Lease.
	hasLed bool
}

var _ resourcelock.Interface = (*lock)(nil)

// Get returns the Lease. For a process that has not led yet, it waits until the Lease is free: the waits of
// client-go would not repeat.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	for {
		if record, err := l.read(); record != nil || err != nil {
			return record, []byte(fmt.Sprint(record)), err
		}
		timer := time.NewTimer(l.world.Between(retryPeriod, 22*retryPeriod/10, "lease "+l.name))
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
		case <-l.done:
		}
		timer.Stop()
		return nil, nil, hub.ErrStopped
	}
}

// read returns the Lease, or nothing if the process has to wait for it.
func (l *lock) read() (*resourcelock.LeaderElectionRecord, error) {
	l.lease.mu.Lock()
	defer l.lease.mu.Unlock()
	record := l.record
	switch isCut := l.cutFor() > 0; {
	case l.hasLed && isCut:
		return nil, errCutOff
	case l.hasLed:
		return &record, nil
	case isCut || !l.isFree():
		return nil, nil
	}
	record.HolderIdentity = ""
	return &record, nil
}

// Create is never called: Get finds a Lease.
func (*lock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return errors.New("the Lease exists")
}

// Update writes the Lease, unless another process has it.
func (l *lock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	select {
	case <-l.done:
		return hub.ErrStopped
	default:
	}
	l.lease.mu.Lock()
	defer l.lease.mu.Unlock()
	switch {
	case l.cutFor() > 0:
		return errCutOff
	case l.record.HolderIdentity != l.name && !l.isFree():
		return errors.New("another process has the Lease")
	}
	l.record, l.renewed, l.hasLed = record, time.Now(), true
	return nil
}

// RecordEvent writes to the world's log. A process that was killed says nothing.
func (l *lock) RecordEvent(what string) {
	select {
	case <-l.done:
	default:
		l.world.NoteLater(l.name + " " + what)
	}
}

// Identity is the name of the process.
func (l *lock) Identity() string { return l.name }

// Describe is the name of the Lease.
func (*lock) Describe() string { return "plimsoll-system/plimsoll-operator" }

// leader is the process that leads; nil = none.
func (p *process) leader() *instance {
	for _, i := range p.replicas {
		if i.leads() {
			return i
		}
	}
	return nil
}

func (i *instance) leads() bool {
	select {
	case <-i.elected:
		return true
	default:
		return false
	}
}

// ended removes a process. One that lost the Lease starts again.
func (p *process) ended(i *instance) {
	i.stop()
	p.remove(i)
	p.world.Loop.After(restartDelay, p.Start)
}

// CutOff cuts the process that leads off from the hub for a time.
func (p *process) CutOff(lasts time.Duration) {
	if i := p.leader(); i != nil {
		i.connection.cut(lasts)
	}
}

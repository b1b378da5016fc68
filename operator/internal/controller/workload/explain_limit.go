package workload

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

const (
	// maxExplanations is the number of explanations that are made at once, each of another namespace.
	maxExplanations = 4
	// explanationWait is the time for which a request waits for others. The CLI gives up after 15 s.
	explanationWait = 10 * time.Second
)

// explanationLimit limits how many explanations are made at once. Their queries do not wait in the queue
// in which namespaces take turns, and each user who may read a Workload may request explanations.
// The zero value is ready for use.
type explanationLimit struct {
	mu sync.Mutex
	// slots by namespace while requests of it wait or are served. The key "" has those of all namespaces.
	slots map[string]*explanationSlots
}

type explanationSlots struct {
	free *semaphore.Weighted
	// users hold a slot or wait for one.
	users int
}

// take waits for the turn of a namespace, then for one of the slots that all namespaces share, so that a
// namespace with many requests takes no more of these than others. The caller must call giveBack. The
// error is that of ctx.
func (l *explanationLimit) take(ctx context.Context, namespace string) (giveBack func(), err error) {
	leaveOwn, err := l.takeOne(ctx, namespace, 1)
	if err != nil {
		return nil, err
	}
	leaveShared, err := l.takeOne(ctx, "", maxExplanations)
	if err != nil {
		leaveOwn()
		return nil, err
	}
	return func() { leaveShared(); leaveOwn() }, nil
}

func (l *explanationLimit) takeOne(ctx context.Context, key string, n int64) (giveBack func(), err error) {
	slots := l.enter(key, n)
	if err := slots.free.Acquire(ctx, 1); err != nil {
		l.leave(key)
		return nil, err
	}
	return func() { slots.free.Release(1); l.leave(key) }, nil
}

func (l *explanationLimit) enter(key string, n int64) *explanationSlots {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slots == nil {
		l.slots = map[string]*explanationSlots{}
	}
	if l.slots[key] == nil {
		l.slots[key] = &explanationSlots{free: semaphore.NewWeighted(n)}
	}
	l.slots[key].users++
	return l.slots[key]
}

func (l *explanationLimit) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slots[key].users--; l.slots[key].users == 0 {
		delete(l.slots, key)
	}
}

// explainInTurn is Explain within the limit. If the request must wait for too long, the error is
// errBusy.
func (r *Reconciler) explainInTurn(ctx context.Context, key client.ObjectKey) (*gate.Explanation, error) {
	wait, cancel := context.WithTimeout(ctx, explanationWait)
	defer cancel()
	giveBack, err := r.explanations.take(wait, key.Namespace)
	if err != nil {
		return nil, errBusy{key.Namespace}
	}
	defer giveBack()
	return r.Explain(ctx, key)
}

// errBusy is returned if other explanations are being made for too long.
type errBusy struct{ namespace string }

func (e errBusy) Error() string {
	return "the operator makes one explanation at a time for namespace " + e.namespace + ", and few in total: repeat the request in some seconds"
}

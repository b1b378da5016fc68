package hubclient

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// FindWorkload returns a workload by its own name, or by KIND/NAME of its owner. Of several
// workloads of an owner, it returns the current one.
func FindWorkload(ctx context.Context, c client.Reader, namespace, name string) (*kueue.Workload, error) {
	kind, ownerName, byOwner := strings.Cut(name, "/")
	if !byOwner {
		wl := &kueue.Workload{}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, wl)
		if client.IgnoreNotFound(err) == nil && err != nil && !NoSuchResource(err) {
			return nil, fmt.Errorf("namespace %s has no workload %s: to find the workload of a job, use job/%s", namespace, name, name)
		}
		return wl, Reading("workload "+name, err)
	}
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, Reading("workloads", err)
	}
	var found *kueue.Workload
	for i := range list.Items {
		if wl := &list.Items[i]; isOwnedBy(wl, kind, ownerName) && (found == nil || isMoreCurrent(wl, found)) {
			found = wl
		}
	}
	if found == nil {
		return nil, fmt.Errorf("namespace %s has no workload of %s %s: check that the %s exists and has the label kueue.x-k8s.io/queue-name", namespace, kind, ownerName, kind)
	}
	return found, nil
}

func isOwnedBy(wl *kueue.Workload, kind, name string) bool {
	kind = strings.TrimSuffix(strings.ToLower(kind), "s")
	for _, owner := range wl.OwnerReferences {
		if strings.ToLower(owner.Kind) == kind && owner.Name == name {
			return true
		}
	}
	return false
}

// isMoreCurrent reports whether a replaces b as the workload of their owner: an unfinished
// workload replaces a finished one, otherwise the younger replaces the older.
func isMoreCurrent(a, b *kueue.Workload) bool {
	if kueuestate.IsFinished(a) != kueuestate.IsFinished(b) {
		return kueuestate.IsFinished(b)
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

// OwnerOf returns the first owner of a workload as KIND/NAME, or "".
func OwnerOf(wl *kueue.Workload) string {
	for _, owner := range wl.OwnerReferences {
		return strings.ToLower(owner.Kind) + "/" + owner.Name
	}
	return ""
}

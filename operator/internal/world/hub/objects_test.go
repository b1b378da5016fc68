package hub

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestObjects(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	o := NewObjects(func() time.Time { return now }, func(obj client.Object) client.Object { return obj.DeepCopyObject().(client.Object) })
	var events []Event
	o.OnChange(func(e Event) { events = append(events, e) })
	name := types.NamespacedName{Namespace: "team-a", Name: "a"}

	if err := o.Add(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "a"}}, "user"); err != nil {
		t.Fatal(err)
	}
	first := Get[*kueue.Workload](o, name)
	if first.UID == "" || first.ResourceVersion != "1" || !first.CreationTimestamp.Time.Equal(now.Truncate(time.Second)) {
		t.Errorf("added %+v", first.ObjectMeta)
	}
	if err := o.Add(first.DeepCopy(), "user"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("adding it again: %v", err)
	}
	if changed, err := Update(o, name, "kueue", func(*kueue.Workload) bool { return false }); changed || err != nil {
		t.Errorf("no change: %v, %v", changed, err)
	}
	if changed, err := Update(o, name, "kueue", func(wl *kueue.Workload) bool { wl.Spec.QueueName = "gpu"; return true }); !changed || err != nil {
		t.Errorf("change: %v, %v", changed, err)
	}
	if second := Get[*kueue.Workload](o, name); first.Spec.QueueName != "" || second.Spec.QueueName != "gpu" || second.ResourceVersion != "2" {
		t.Errorf("changed %+v to %+v", first, second)
	}
	if err := o.Remove(&kueue.Workload{}, name, "user"); err != nil {
		t.Error(err)
	}
	if Get[*kueue.Workload](o, name) != nil {
		t.Error("a removed object exists")
	}
	if err := o.Remove(&kueue.Workload{}, name, "user"); !apierrors.IsNotFound(err) {
		t.Errorf("removing it again: %v", err)
	}
	if _, err := Update(o, name, "user", func(*kueue.Workload) bool { return true }); !apierrors.IsNotFound(err) {
		t.Errorf("change of a removed object: %v", err)
	}
	if len(events) != 3 || events[0].Type != Added || events[1].Type != Modified || events[1].Manager != "kueue" || events[1].Old != client.Object(first) || events[2].Type != Deleted || events[2].New != nil {
		t.Errorf("events %+v", events)
	}
}

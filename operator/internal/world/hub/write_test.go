package hub

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestCreate(t *testing.T) {
	f := newFixture(t)
	wl := newWorkload("job")
	f.must(f.client.Create(t.Context(), wl))
	if wl.UID == "" || wl.ResourceVersion != "1" || wl.Generation != 1 || !wl.CreationTimestamp.Time.Equal(start.Truncate(time.Second)) {
		t.Errorf("metadata of a new object: %+v", wl.ObjectMeta)
	}
	if wl.Status.Admission != nil {
		t.Error("a create must not write the status")
	}
	for _, tc := range []struct {
		name  string
		obj   client.Object
		isErr func(error) bool
	}{
		{"that exists", newWorkload("job"), apierrors.IsAlreadyExists},
		{"with a version", func() client.Object { w := newWorkload("other"); w.ResourceVersion = "1"; return w }(), apierrors.IsBadRequest},
		{"without a name", newWorkload(""), apierrors.IsBadRequest},
		{"without a namespace", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, apierrors.IsBadRequest},
		{"of a cluster-scoped kind with a namespace", &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}, apierrors.IsBadRequest},
	} {
		if err := f.client.Create(t.Context(), tc.obj); !tc.isErr(err) {
			t.Errorf("create an object %s: %v", tc.name, err)
		}
	}
	named, generated := newWorkload("named"), newWorkload("")
	named.UID, generated.GenerateName = "my-uid", "job-"
	f.must(f.client.Create(t.Context(), named))
	f.must(f.client.Create(t.Context(), generated))
	if named.UID != "my-uid" || generated.Name != "job-00003" {
		t.Errorf("UID %q, generated name %q", named.UID, generated.Name)
	}
}

func TestStatusIsolation(t *testing.T) {
	f := newFixture(t)
	f.create(newWorkload("job"))
	wl := f.workload()
	if wl.Status.Admission == nil || wl.Generation != 1 {
		t.Fatalf("a status update must write the status and keep generation 1: %d", wl.Generation)
	}
	if want := start.Truncate(time.Second); !wl.Status.Conditions[0].LastTransitionTime.Time.Equal(want) {
		t.Errorf("times must have seconds: %s", wl.Status.Conditions[0].LastTransitionTime)
	}

	wl.Spec.QueueName, wl.Status.Admission, wl.Annotations = "other", nil, map[string]string{"a": "b"}
	both := wl.DeepCopy()
	f.must(f.client.Update(t.Context(), wl))
	if wl.Status.Admission == nil || wl.Spec.QueueName != "other" || wl.Annotations["a"] != "b" || wl.Generation != 2 {
		t.Errorf("an update must write all but the status: generation %d, %+v", wl.Generation, wl.Status.Admission)
	}
	both.ResourceVersion, both.Spec.QueueName, both.Annotations, both.Labels = wl.ResourceVersion, "third", nil, map[string]string{}
	f.must(f.client.Status().Update(t.Context(), both))
	if both.Status.Admission != nil || both.Spec.QueueName != "other" || both.Annotations["a"] != "b" || both.Labels["app"] != "job" || both.Generation != 2 {
		t.Errorf("a status update must write the status only: %+v", both)
	}
	if err := f.client.Status().Update(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}); !apierrors.IsNotFound(err) {
		t.Errorf("status of a kind without status: %v", err)
	}
}

func TestGeneration(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		want   int64
	}{
		{"label", func(w *kueue.Workload) { w.Labels["x"] = "y" }, 1},
		{"owner", func(w *kueue.Workload) { w.OwnerReferences = []metav1.OwnerReference{{UID: "x"}} }, 1},
		{"spec", func(w *kueue.Workload) { w.Spec.Priority = new(int32) }, 2},
		{"item of a list in the spec", func(w *kueue.Workload) { w.Spec.PodSets[0].Count++ }, 2},
		{"field below an atomic list", func(w *kueue.Workload) { w.Spec.PodSets[0].Template.Spec.Containers[0].Image = "x" }, 2},
		{"order of a keyed list", func(w *kueue.Workload) {
			w.Spec.PodSets[0], w.Spec.PodSets[1] = w.Spec.PodSets[1], w.Spec.PodSets[0]
		}, 2},
		{"nothing", func(*kueue.Workload) {}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			wl := newWorkload("job")
			wl.Spec.PodSets = append(wl.Spec.PodSets, kueue.PodSet{Name: "second"})
			f.must(f.client.Create(t.Context(), wl))
			f.takeEvents()
			before := wl.ResourceVersion
			tc.change(wl)
			f.must(f.client.Update(t.Context(), wl))
			if wl.Generation != tc.want {
				t.Errorf("generation %d, want %d", wl.Generation, tc.want)
			}
			isWrite := tc.name != "nothing"
			if changed := wl.ResourceVersion != before; changed != isWrite || (len(f.takeEvents()) == 1) != isWrite {
				t.Errorf("resourceVersion changed: %v, want %v with an event", changed, isWrite)
			}
		})
	}
}

func TestConflict(t *testing.T) {
	f := newFixture(t)
	f.create(newWorkload("job"))
	stale := f.workload()
	fresh := f.workload()
	fresh.Labels["x"] = "y"
	f.must(f.client.Update(t.Context(), fresh))

	modified := stale.DeepCopy()
	modified.Spec.QueueName = "other"
	lock := client.MergeFromWithOptions(stale, client.MergeFromWithOptimisticLock{})
	jsonPatch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/metadata/resourceVersion","value":"`+stale.ResourceVersion+`"},{"op":"add","path":"/status/admissionChecks/1/message","value":"x"}]`))
	merge := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"`+stale.ResourceVersion+`"},"spec":{"active":false}}`))
	apply := workloadApply(t, `{"nominatedClusterNames":["a"]}`)
	apply.SetResourceVersion(stale.ResourceVersion)
	noVersion := f.workload()
	noVersion.ResourceVersion = ""
	otherUID := types.UID("other")
	for name, tc := range map[string]struct {
		err   error
		isErr func(error) bool
	}{
		"update":            {f.client.Update(t.Context(), stale.DeepCopy()), apierrors.IsConflict},
		"status update":     {f.client.Status().Update(t.Context(), stale.DeepCopy()), apierrors.IsConflict},
		"merge from":        {f.client.Patch(t.Context(), modified.DeepCopy(), lock), apierrors.IsConflict},
		"status JSON patch": {f.client.Status().Patch(t.Context(), stale.DeepCopy(), jsonPatch), apierrors.IsConflict},
		"merge patch":       {f.client.Patch(t.Context(), stale.DeepCopy(), merge), apierrors.IsConflict},
		"apply":             {f.client.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(apply)), apierrors.IsConflict},
		"delete by version": {f.client.Delete(t.Context(), stale, client.Preconditions{ResourceVersion: &stale.ResourceVersion}), apierrors.IsConflict},
		"delete by UID":     {f.client.Delete(t.Context(), stale, client.Preconditions{UID: &otherUID}), apierrors.IsConflict},
		"no version":        {f.client.Update(t.Context(), noVersion), apierrors.IsInvalid},
		"dry run":           {f.client.Update(t.Context(), fresh, client.DryRunAll), apierrors.IsBadRequest},
		"not found":         {f.client.Update(t.Context(), newWorkload("unknown")), apierrors.IsNotFound},
	} {
		if !tc.isErr(tc.err) {
			t.Errorf("%s: %v", name, tc.err)
		}
	}
	if live := f.workload(); live.ResourceVersion != fresh.ResourceVersion {
		t.Error("a refused write must change nothing")
	}
	f.must(f.client.Patch(t.Context(), modified, client.MergeFrom(stale)))
	if modified.Spec.QueueName != "other" || modified.Labels["x"] != "y" {
		t.Error("a patch without a version must be merged into the live object")
	}
}

func TestDelete(t *testing.T) {
	f := newFixture(t)
	wl := newWorkload("job")
	wl.Finalizers = []string{"kueue.x-k8s.io/managed-resources"}
	f.must(f.client.Create(t.Context(), wl))
	f.must(f.client.Delete(t.Context(), wl))
	live := f.workload()
	if live.DeletionTimestamp == nil || live.Generation != 2 {
		t.Fatalf("an object with finalizers must be marked: %+v", live.ObjectMeta)
	}
	f.must(f.client.Delete(t.Context(), wl))
	live.Finalizers = nil
	f.must(f.client.Update(t.Context(), live))
	if err := f.client.Get(t.Context(), key("job"), wl); !apierrors.IsNotFound(err) {
		t.Errorf("without finalizers the object must be removed: %v", err)
	}
	f.must(f.client.Create(t.Context(), newWorkload("job")))
	if err := f.client.Delete(t.Context(), newWorkload("unknown")); !apierrors.IsNotFound(err) {
		t.Errorf("delete of an unknown object: %v", err)
	}
	if diff := cmp.Diff([]string{"Added job", "Modified job", "Deleted job", "Added job"}, f.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	f.must(f.client.DeleteAllOf(t.Context(), &kueue.Workload{}, client.InNamespace("team")))
	if f.takeEvents()[0] != "Deleted job" {
		t.Error("DeleteAllOf must delete the objects")
	}
}

func TestGarbageCollection(t *testing.T) {
	f := newFixture(t)
	owner := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "owner"}}
	f.must(f.client.Create(t.Context(), owner))
	adopt := func(name string, refs ...metav1.OwnerReference) {
		wl := newWorkload(name)
		wl.OwnerReferences = refs
		f.must(f.client.Create(t.Context(), wl))
	}
	reference := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "owner", UID: owner.UID}
	adopt("b", reference)
	adopt("a", reference, metav1.OwnerReference{UID: "other"})
	adopt("c", metav1.OwnerReference{UID: "other"})
	adopt("former", reference)
	_, err := Update(f.server, key("former"), "x", func(wl *kueue.Workload) bool { wl.OwnerReferences = nil; return true })
	f.must(err)
	f.takeEvents()
	f.must(f.client.Delete(t.Context(), owner))
	if diff := cmp.Diff([]string{"Deleted owner", "Deleted a", "Deleted b"}, f.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A listener that writes gets the event of its own write after it has returned.
func TestListenerWrites(t *testing.T) {
	f := newFixture(t)
	f.server.OnChange(func(e Event) {
		if e.Type == Added {
			_, _ = Update(f.server, e.Key, "listener", func(wl *kueue.Workload) bool { wl.Status.ClusterName = &e.Key.Name; return true })
		}
	})
	f.must(f.client.Create(t.Context(), newWorkload("job")))
	if diff := cmp.Diff([]string{"Added job", "Modified job"}, f.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Kubernetes limits the annotations of an object, in each write of it.
func TestAnnotationsAreLimited(t *testing.T) {
	f := newFixture(t)
	const limit = 256 << 10
	full := newWorkload("full")
	full.Annotations = map[string]string{"notes": strings.Repeat("x", limit-len("notes"))}
	f.must(f.client.Create(t.Context(), full))
	full.Annotations["a"] = ""
	if err := f.client.Update(t.Context(), full); !apierrors.IsInvalid(err) {
		t.Errorf("update: %v", err)
	}
	more := newWorkload("more")
	more.Annotations = full.Annotations
	if err := f.client.Create(t.Context(), more); !apierrors.IsInvalid(err) {
		t.Errorf("create: %v", err)
	}
}

func TestList(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"b", "c", "a"} {
		f.must(f.client.Create(t.Context(), newWorkload(name)))
	}
	other := newWorkload("d")
	other.Namespace = "another"
	f.must(f.client.Create(t.Context(), other))
	for _, tc := range []struct {
		name string
		opts []client.ListOption
		want []string
	}{
		{"all, sorted", nil, []string{"another/d", "team/a", "team/b", "team/c"}},
		{"namespace", []client.ListOption{client.InNamespace("team")}, []string{"team/a", "team/b", "team/c"}},
		{"unknown namespace", []client.ListOption{client.InNamespace("x")}, nil},
		{"label", []client.ListOption{client.MatchingLabels{"app": "b"}}, []string{"team/b"}},
		{"name", []client.ListOption{client.MatchingFields{"metadata.name": "c"}}, []string{"team/c"}},
		{"limit", []client.ListOption{client.Limit(2)}, []string{"another/d", "team/a"}},
	} {
		list := &kueue.WorkloadList{}
		f.must(f.client.List(t.Context(), list, tc.opts...))
		var got []string
		for i := range list.Items {
			got = append(got, client.ObjectKeyFromObject(&list.Items[i]).String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	if err := f.client.List(t.Context(), &kueue.WorkloadList{}, client.MatchingFields{"spec.queueName": "gpu"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that the API server has no selector for: %v", err)
	}
}

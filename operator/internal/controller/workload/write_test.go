package workload

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// live state of a workload on the operator's hub.
func live(t *testing.T, r *Reconciler, s *subject) *kueue.Workload {
	t.Helper()
	wl := &kueue.Workload{}
	if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(s.wl), wl); err != nil {
		t.Fatal(err)
	}
	return wl
}

// A cache that lacks the last of what was written is told from one that shows it.
func TestEveryWriteIsRemembered(t *testing.T) {
	ctx, d := t.Context(), gate.Decision{State: gate.Pending, Message: "no cluster has room"}
	for name, write := range map[string]func(*Reconciler, *subject) error{
		"check":      func(r *Reconciler, s *subject) error { return r.writeChecks(ctx, s, d) },
		"annotation": func(r *Reconciler, s *subject) error { _, err := r.annotate(ctx, s.wl, dispatch.Record{}); return err },
		"yield":      func(r *Reconciler, s *subject) error { return r.yield(ctx, s, d, dispatch.Record{}) },
		"nomination": func(r *Reconciler, s *subject) error {
			return r.write(ctx, s, []string{"cluster1"}, &dispatch.Record{}, "", "")
		},
	} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		r, s := b.operator(t, nominating(b.holder(b.clock.now())))
		if err := write(r, s); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		seen := live(t, r, s)
		if r.tracks.behind(seen, b.clock.now()) {
			t.Errorf("%s: what shows it is not behind", name)
		}
		version, err := strconv.Atoi(seen.ResourceVersion)
		if err != nil {
			t.Fatal(err)
		}
		seen.ResourceVersion = strconv.Itoa(version - 1)
		if !r.tracks.behind(seen, b.clock.now()) {
			t.Errorf("%s: what was there before it is behind", name)
		}
	}
}

// What is read too early would take back what the ledger holds.
func TestALaggingCacheTakesNothingBack(t *testing.T) {
	b := roomy()
	now := b.clock.now()
	r, s := b.operator(t, nominating(b.holder(now)))
	s.usable = []string{"cluster1", "cluster2"}
	early := *s
	early.wl = s.wl.DeepCopy()
	if err := r.write(t.Context(), s, []string{"cluster1"}, &dispatch.Record{Attempt: 1, NominatedAt: now, Nominated: []string{"cluster1"}}, "Nominated", ""); err != nil {
		t.Fatal(err)
	}
	b.Ledger.Debit(Entry(b.facts, "cluster1", now))
	b.source.answers["floor("] = series("cluster2", 9.0)
	result, err := r.gated(t.Context(), &early)
	if result.RequeueAfter != timing.RereadDelay || err != nil {
		t.Errorf("looks again after %s, %v", result.RequeueAfter, err)
	}
	if diff := cmp.Diff(map[string]int64{"cluster1": 2}, b.Ledger.DevicesByCluster()); diff != "" {
		t.Errorf("devices held (-want +got):\n%s", diff)
	}
}

// Numbers change with nearly every job: of many that wait, at whatever gates, not each
// says so each time.
func TestMessagesOfManyKeepTheirPace(t *testing.T) {
	for _, tc := range []struct {
		waiting int32
		after   time.Duration
		want    string
	}{{1, 9 * time.Second, "1 free"}, {1, 10 * time.Second, "2 free"}, {11, 59 * time.Second, "1 free"}, {11, time.Minute, "2 free"}} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		r, s := b.operator(t, b.holder(b.clock.now()))
		r.board.SetWaiting("gpu", registry.WaitSummary{Workloads: tc.waiting, Since: b.clock.now()})
		r.board.SetWaiting("tpu", registry.WaitSummary{Workloads: 1, Since: b.clock.now()})
		for _, message := range []string{"1 free", "2 free"} {
			d := gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, Message: message}
			if err := r.writeCheck(t.Context(), s, d, dispatch.Record{}); err != nil {
				t.Fatal(err)
			}
			b.add(tc.after)
		}
		if got := live(t, r, s).Status.AdmissionChecks[0].Message; got != tc.want {
			t.Errorf("one of %d that wait says %q %s after 1 free, want %q", tc.waiting+1, got, tc.after, tc.want)
		}
	}
}

// What is more than a new number is said at once: that the source does not answer, what
// is wrong with the gate, and whatever Kueue has cleared.
func TestNewsKeepNoPace(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	r, s := b.operator(t, b.holder(b.clock.now()))
	r.board.SetWaiting("gpu", registry.WaitSummary{Workloads: 100, Since: b.clock.now()})
	noRoom := gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, Message: "1 free"}
	for _, d := range []gate.Decision{noRoom,
		{State: gate.Pending, Reason: gate.ReasonNoRoom, Message: "1 free; connection refused", Incomplete: true},
		{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: "Placement a does not exist"},
		{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: "Placement b does not exist"}, noRoom} {
		if err := r.writeCheck(t.Context(), s, d, dispatch.Record{}); err != nil {
			t.Fatal(err)
		}
		if got := live(t, r, s).Status.AdmissionChecks[0].Message; got != d.Message {
			t.Errorf("it says %q, want %q", got, d.Message)
		}
	}
	if err := r.undecided(t.Context(), s, "two checks"); err != nil {
		t.Fatal(err)
	}
	if err := r.writeCheck(t.Context(), s, noRoom, dispatch.Record{}); err != nil {
		t.Fatal(err)
	}
	if got := live(t, r, s).Status.AdmissionChecks[0].Message; got != "1 free" {
		t.Errorf("decided anew, it says %q", got)
	}
	evicted := live(t, r, s)
	evicted.Status.AdmissionChecks[0].Message = ""
	if err := r.client.Status().Update(t.Context(), evicted); err != nil {
		t.Fatal(err)
	}
	s.wl = evicted
	if err := r.writeCheck(t.Context(), s, noRoom, dispatch.Record{}); err != nil {
		t.Fatal(err)
	}
	if got := live(t, r, s).Status.AdmissionChecks[0].Message; got != "1 free" {
		t.Errorf("after Kueue cleared it, it says %q", got)
	}
}

// Kueue resets the check of a workload that it evicts, and leaves what is not its own.
func TestACheckThatWaitsPinsNothing(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	wl := b.holder(b.clock.now())
	wl.Status.AdmissionChecks[0].PodSetUpdates = []kueue.PodSetUpdate{{Name: "main", NodeSelector: map[string]string{"cluster": "cluster1"}}}
	r, s := b.operator(t, wl)
	if err := r.writeChecks(t.Context(), s, gate.Decision{State: gate.Pending, Message: "no cluster has room"}); err != nil {
		t.Fatal(err)
	}
	if got := live(t, r, s).Status.AdmissionChecks[0]; got.PodSetUpdates != nil || got.Message != "no cluster has room" {
		t.Errorf("written: %+v", got)
	}
}

// A check is written on what was decided upon, not over what Kueue did meanwhile.
func TestAWriteOverwritesNothingThatIsNewer(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	r, s := b.operator(t, b.holder(b.clock.now()))
	evicted := live(t, r, s)
	evicted.Status.Admission = nil
	if err := r.client.Status().Update(t.Context(), evicted); err != nil {
		t.Fatal(err)
	}
	err := r.writeChecks(t.Context(), s, gate.Decision{State: gate.Ready, Message: "cluster1 can take it"})
	if got := live(t, r, s).Status.AdmissionChecks[0]; !apierrors.IsConflict(err) || got.State != kueue.CheckStatePending {
		t.Errorf("%v; the check of a workload without quota is %s", err, got.State)
	}
}

// An entry that is gone makes a patch invalid; what is invalid anyway stays an error.
func TestAnEntryThatWasRemovedIsNoError(t *testing.T) {
	refused := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{}, "", "", 0, false)
	for _, moved := range []bool{true, false} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		r, s := b.operator(t, b.holder(b.clock.now()))
		if moved {
			wl := live(t, r, s)
			wl.Status.AdmissionChecks = nil
			if err := r.client.Status().Update(t.Context(), wl); err != nil {
				t.Fatal(err)
			}
		}
		r.client = interceptor.NewClient(r.client.(client.WithWatch), interceptor.Funcs{
			SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
				return refused
			}})
		err := r.writeChecks(t.Context(), s, gate.Decision{State: gate.Pending, Message: "no room"})
		if apierrors.IsConflict(err) != moved || apierrors.IsInvalid(err) == moved {
			t.Errorf("moved %t: %v", moved, err)
		}
	}
}

// What was counted without a place ends with a place, also where Kueue dispatches.
func TestAPlaceEndsTheWaitWhereKueueDispatches(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	wl := dispatched(nominating(b.holder(b.clock.now())), dispatch.Record{UnplacedSeconds: 100, Yields: 2})
	wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending
	r, s := b.operator(t, wl)
	r.nominate = false
	before, err := dispatch.Decode(s.wl.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.writeCheck(t.Context(), s, gate.Decision{State: gate.Ready, Order: []string{"cluster1"}, Message: "cluster1 can take it"}, before); err != nil {
		t.Fatal(err)
	}
	after, err := dispatch.Decode(live(t, r, s).Annotations)
	if diff := cmp.Diff(dispatch.Record{}, after); diff != "" || err != nil {
		t.Errorf("still counted (-want +got):\n%s%v", diff, err)
	}
}

// A workload that was woken is seen awake in the same look: what follows must not
// put it to sleep again.
func TestWokenIsSeenAwake(t *testing.T) {
	b := newBench(v1alpha1.PlacementGateSpec{})
	wl, asleep := dispatched(b.holder(b.clock.now()), dispatch.Record{Attempt: 1, SleepsUntil: b.clock.now().Add(-time.Second)}), false
	wl.Spec.Active = &asleep
	r, s := b.operator(t, wl)
	if left, err := r.wake(t.Context(), s.wl); left != 0 || err != nil {
		t.Fatal(left, err)
	}
	d, err := dispatch.Decode(s.wl.Annotations)
	if !*s.wl.Spec.Active || !d.SleepsUntil.IsZero() || err != nil {
		t.Errorf("active %t, sleeps until %s, %v", *s.wl.Spec.Active, d.SleepsUntil, err)
	}
}

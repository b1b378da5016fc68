package loop

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// errEnded is the result of a write of a process that was killed.
var errEnded = errors.New("the process has ended")

// Field managers of the operator.
const (
	gateManager     = "plimsoll-gate"
	dispatchManager = "plimsoll-dispatch"
)

// Write implements engine.Edge. As for the operator, the API server serves the request after half of its duration.
func (p *process) Write(_ context.Context, w *engine.Writing, request lifecycle.Write) error {
	before := w.Workload.Status.NominatedClusterNames
	if request.Nomination != nil {
		live := p.live(w)
		if live == nil || !kueuestate.AcceptsNomination(live, w.Checks.MultiKueue, w.MultiKueue.EvictionLag, p.now()) || !slices.Equal(live.Status.NominatedClusterNames, before) {
			return newConflict(w)
		}
		w.Workload.ResourceVersion = live.ResourceVersion
	}
	fault := p.options.Intercept(hub.Request{Verb: verbOf(request), Kind: workloadKind, Key: w.Key})
	p.driver.sleep(fault.Latency / 2)
	err := fault.Before
	if p.stopped {
		return errEnded
	}
	if err == nil {
		err = p.storeWrite(w, request)
	}
	p.driver.sleep(fault.Latency - fault.Latency/2)
	if p.stopped {
		return errEnded
	}
	err = cmp.Or(err, fault.After)
	w.History.LastWrite.MayBeStored = err != nil && mayBeStored(err)
	if err != nil {
		return err
	}
	if request.Nomination != nil {
		w.History = w.History.Nominated(len(before) == 0, p.now())
	}
	w.History.LastWrite.Version, w.History.LastWrite.At = w.Workload.ResourceVersion, p.now()
	return nil
}

// live is the workload to nominate clusters for: the one that the record was written to, or that of the hub.
func (p *process) live(w *engine.Writing) *kueue.Workload {
	if stored, ok := w.Stored.(*kueue.Workload); ok {
		return stored
	}
	return hub.Get[*kueue.Workload](p.store, w.Key)
}

func verbOf(w lifecycle.Write) string {
	if w.Nomination != nil {
		return "apply"
	}
	return "patch"
}

// storeWrite stores one write, unless the workload has changed since the decision.
func (p *process) storeWrite(w *engine.Writing, request lifecycle.Write) error {
	manager := gateManager
	if request.Nomination != nil {
		manager = dispatchManager
	}
	isConflict := false
	_, err := hub.Update(p.store, w.Key, manager, func(wl *kueue.Workload) bool {
		if isConflict = wl.ResourceVersion != w.Workload.ResourceVersion; isConflict {
			return false
		}
		return p.change(wl, request)
	})
	switch {
	case err != nil:
		return err
	case isConflict:
		return newConflict(w)
	}
	stored := hub.Get[*kueue.Workload](p.store, w.Key)
	w.Workload.ResourceVersion = stored.ResourceVersion
	if r := request.Record; r != nil {
		w.Workload.Annotations, w.Stored = stored.Annotations, stored
		if r.Active != nil {
			w.Workload.Spec.Active = r.Active
		}
	}
	return nil
}

// change makes a write to a copy of the workload and reports whether that changed it.
func (p *process) change(wl *kueue.Workload, request lifecycle.Write) (changed bool) {
	switch {
	case request.Record != nil:
		if wl.Annotations == nil {
			wl.Annotations = map[string]string{}
		}
		wl.Annotations[v1alpha1.DispatchAnnotation] = request.Record.Record.Encode()
		if request.Record.Active != nil {
			wl.Spec.Active = request.Record.Active
		}
		return true
	case request.Nomination != nil:
		wl.Status.NominatedClusterNames = slices.Clone(request.Nomination.Clusters)
		return true
	}
	for _, name := range request.Check.Names {
		c := kueuestate.FindCheck(wl, name)
		d := request.Check.Decision
		if string(c.State) != string(d.State) {
			c.State, c.LastTransitionTime, changed = kueue.CheckState(d.State), metav1.NewTime(p.now()).Rfc3339Copy(), true
		}
		updates := request.Check.PodSetUpdates
		if d.State != gate.Ready {
			updates = nil
		}
		changed = changed || c.Message != d.Message || len(updates) > 0 || len(c.PodSetUpdates) > 0
		c.Message, c.PodSetUpdates = d.Message, updates
	}
	return changed
}

// readUnknownWrite reads the version of a workload whose last write may be stored.
func (p *process) readUnknownWrite(s *lifecycle.Situation) *lifecycle.Situation {
	h := s.History
	h.LastWrite.Version, h.LastWrite.At, h.LastWrite.MayBeStored = "", p.now(), false
	if live := hub.Get[*kueue.Workload](p.store, s.Key); live != nil {
		h.LastWrite.Version = live.ResourceVersion
	}
	p.engine.Remember(s.Workload.UID, h)
	return s.WithHistory(h)
}

// Notify implements engine.Edge.
func (p *process) Notify(s *lifecycle.Situation, n lifecycle.Notice) {
	p.driver.Note("event %s on %s: %s", n.Reason, s.Key.Name, n.Message)
}

func mayBeStored(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code < http.StatusBadRequest || status.Status().Code >= http.StatusInternalServerError
}

func newConflict(w *engine.Writing) error {
	return apierrors.NewConflict(schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "workloads"}, w.Key.Name, errors.New("the workload changed since the decision"))
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

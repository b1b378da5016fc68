package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
)

// writeNomination sets the nominated clusters on the workload as the API server has it now: an earlier write
// of the step returned it, or it is read. If Kueue's state does not accept a nomination, or the
// list has changed since the decision, the write is a conflict.
func (r *Reconciler) writeNomination(ctx context.Context, s *engine.Writing, w lifecycle.NominationWrite) error {
	live, _ := s.Stored.(*unstructured.Unstructured)
	if live == nil {
		live = workloadPatch(s.Workload, "")
		if err := r.live.Get(ctx, s.Key, live); err != nil {
			return err
		}
	}
	wl := &kueue.Workload{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, wl); err != nil {
		return fmt.Errorf("read workload %s: %w", s.Key, err)
	}
	before := s.Workload.Status.NominatedClusterNames
	if !kueuestate.AcceptsNomination(wl, s.Checks.MultiKueue, s.MultiKueue.EvictionLag, r.now()) || !slices.Equal(wl.Status.NominatedClusterNames, before) {
		return newConflict(s.Workload)
	}
	u, owner, err := r.nominationPatch(ctx, live, w.Clusters)
	if err != nil {
		return err
	}
	if err := r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("nominate clusters for workload %s: %w", s.Key, err)
	}
	s.History = s.History.Nominated(len(before) == 0, r.now())
	rememberWrite(s, u, r.now())
	return nil
}

// nominationPatch is the apply of a nomination and its field manager: Kueue's or the operator's.
func (r *Reconciler) nominationPatch(ctx context.Context, live *unstructured.Unstructured, clusters []string) (*unstructured.Unstructured, client.FieldOwner, error) {
	own, err := r.nominatesAsOwn(ctx)
	if err != nil {
		return nil, "", err
	}
	if !own {
		u, err := nomination(live, clusters)
		return u, admissionOwner, err
	}
	u := workloadPatch(live, live.GetResourceVersion())
	err = unstructured.SetNestedStringSlice(u.Object, clusters, "status", "nominatedClusterNames")
	return u, dispatchOwner, err
}

// nominatesAsOwn reports whether the operator's own field manager writes nominations.
func (r *Reconciler) nominatesAsOwn(ctx context.Context) (bool, error) {
	if r.nominateAs == NominateAsDetected {
		return hubstate.ClearsNominations(ctx, r.client)
	}
	return r.nominateAs == NominateAsOwn, nil
}

// nomination is the apply of Kueue's own field manager: every field that the manager owns in
// the live object, and the list of clusters. An apply removes the fields that it leaves out:
// with the list alone the workload would lose its quota.
func nomination(live *unstructured.Unstructured, clusters []string) (*unstructured.Unstructured, error) {
	u := workloadPatch(live, live.GetResourceVersion())
	status := map[string]any{}
	for _, m := range live.GetManagedFields() {
		if m.Manager != string(admissionOwner) || m.Operation != metav1.ManagedFieldsOperationApply || m.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields); err != nil {
			return nil, fmt.Errorf("managedFields of %s: %w", m.Manager, err)
		}
		owned, ok := fields["f:status"].(map[string]any)
		current, _ := live.Object["status"].(map[string]any)
		if ok && current != nil {
			part, _ := extract(current, owned).(map[string]any)
			maps.Copy(status, part)
		}
	}
	names := make([]any, len(clusters))
	for i, c := range clusters {
		names[i] = c
	}
	status["nominatedClusterNames"] = names
	u.Object["status"] = status
	return u, nil
}

// extract returns the owned part of a value. fields is FieldsV1: "f:name" is a field, "k:{…}"
// a list item by its keys, "v:…" a member of a set, "." the value itself. A field without
// children is owned as a whole.
func extract(value any, fields map[string]any) any {
	switch v := value.(type) {
	case map[string]any:
		return extractMap(v, fields)
	case []any:
		return extractList(v, fields)
	}
	return value
}

func extractMap(value, fields map[string]any) any {
	part := map[string]any{}
	whole := true
	for key, sub := range fields {
		if key == "." {
			continue
		}
		whole = false
		name, ok := strings.CutPrefix(key, "f:")
		if !ok {
			continue
		}
		if child, ok := value[name]; ok {
			children, _ := sub.(map[string]any)
			part[name] = extract(child, children)
		}
	}
	if whole && len(fields) == 0 {
		return value
	}
	return part
}

func extractList(list []any, fields map[string]any) any {
	if len(fields) == 0 {
		return list
	}
	part := []any{}
	for _, item := range list {
		for key, sub := range fields {
			children, _ := sub.(map[string]any)
			if raw, ok := strings.CutPrefix(key, "k:"); ok {
				if keys, ok := matches(item, raw); ok {
					picked, _ := extract(item, children).(map[string]any)
					maps.Copy(picked, keys)
					part = append(part, picked)
				}
			} else if raw, ok := strings.CutPrefix(key, "v:"); ok && equalJSON(item, raw) {
				part = append(part, item)
			}
		}
	}
	return part
}

// matches reports whether a list item has the keys, and returns them.
func matches(item any, raw string) (map[string]any, bool) {
	object, ok := item.(map[string]any)
	var keys map[string]any
	if !ok || json.Unmarshal([]byte(raw), &keys) != nil {
		return nil, false
	}
	for name, want := range keys {
		if fmt.Sprint(object[name]) != fmt.Sprint(want) {
			return nil, false
		}
	}
	found := map[string]any{}
	for name := range keys {
		if value, ok := object[name]; ok {
			found[name] = value
		}
	}
	return found, true
}

func equalJSON(item any, raw string) bool {
	var want any
	return json.Unmarshal([]byte(raw), &want) == nil && fmt.Sprint(item) == fmt.Sprint(want)
}

package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// write a nomination: the annotation first (nil = none), then the list of
// clusters, on the state that the apiserver has now. A conflict drops it.
func (r *Reconciler) write(ctx context.Context, s *subject, clusters []string, d *dispatch.Record, reason, message string) error {
	var live *unstructured.Unstructured
	var err error
	if d != nil {
		live, err = r.annotate(ctx, s.wl, *d)
	} else {
		live = bare(s.wl, "")
		err = r.live.Get(ctx, s.key(), live)
	}
	if err != nil {
		return err
	}
	now := &kueue.Workload{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, now); err != nil {
		return fmt.Errorf("read workload: %w", err)
	}
	if !kueuestate.AcceptsNomination(now, s.mk, r.now()) || !slices.Equal(now.Status.NominatedClusterNames, s.wl.Status.NominatedClusterNames) {
		return conflict(s.wl)
	}
	u, err := nomination(live, clusters)
	owner := admissionOwner
	if r.ownNominations {
		u, owner = bare(live, live.GetResourceVersion()), dispatchOwner
		err = unstructured.SetNestedStringSlice(u.Object, clusters, "status", "nominatedClusterNames")
	}
	if err != nil {
		return err
	}
	if err := r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("nominate: %w", err)
	}
	r.wrote(s.wl, u)
	added := slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return slices.Contains(s.wl.Status.NominatedClusterNames, c) })
	r.metrics.nominated(added, reason)
	r.event(s.wl, false, reason, gate.Truncate(fmt.Sprintf("%v: %s", clusters, message)))
	return nil
}

// nomination is the apply of Kueue's own manager with every field that it owns
// in the live object, and our list of clusters. Left out, a field would be
// removed: with the list alone the workload would lose its quota.
func nomination(live *unstructured.Unstructured, clusters []string) (*unstructured.Unstructured, error) {
	u := bare(live, live.GetResourceVersion())
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

// extract the owned part of a value. fields is FieldsV1: "f:name" is a field,
// "k:{…}" a list item by its keys, "v:…" a member of a set, "." the value itself.
// Fields without children are owned whole.
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
		name, ok := cut(key, "f:")
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
			if raw, ok := cut(key, "k:"); ok {
				if keys, ok := matches(item, raw); ok {
					picked, _ := extract(item, children).(map[string]any)
					maps.Copy(picked, keys)
					part = append(part, picked)
				}
			} else if raw, ok := cut(key, "v:"); ok && equalJSON(item, raw) {
				part = append(part, item)
			}
		}
	}
	return part
}

// matches says whether a list item has the keys, and returns them.
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

func cut(key, prefix string) (string, bool) {
	if len(key) < len(prefix) || key[:len(prefix)] != prefix {
		return "", false
	}
	return key[len(prefix):], true
}

package hub

import (
	"cmp"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// managerID identifies an entry of managedFields.
type managerID struct {
	name      string
	operation metav1.ManagedFieldsOperationType
	part      subresource
}

// ownership is an entry of managedFields.
type ownership struct {
	managerID
	time   metav1.Time
	fields fields
	// encoded is the set as FieldsV1.
	encoded *metav1.FieldsV1
}

func (m ownership) equal(other ownership) bool {
	return m.managerID == other.managerID && equalFields(m.fields, other.fields)
}

// newOwnership returns an entry with a time, or the entry as it was if the set is the same and the
// time is not renewed.
func newOwnership(id managerID, set fields, stamp metav1.Time, before *ownership, renew bool) ownership {
	m := ownership{managerID: id, time: stamp, fields: set}
	if before != nil {
		if !renew {
			m.time = before.time
		}
		if equalFields(set, before.fields) {
			m.encoded = before.encoded
		}
	}
	return m
}

// managers returns the owners of the fields after a write.
//
// Each field that got a new value or was removed leaves the sets of the other managers. An update
// adds the new values to the manager's own set. An apply replaces the set.
func (w *write) managers(before []ownership, d delta, stamp metav1.Time) []ownership {
	sets := w.ownSets(before, d)
	var after []ownership
	for i := range before {
		m := before[i]
		if _, own := sets[m.managerID]; own {
			continue
		}
		if rest, changed := removeBoth(m.fields, d); changed {
			m.fields, m.encoded = rest, nil
		}
		if m.fields != nil {
			after = append(after, m)
		}
	}
	for id, set := range sets {
		if set == nil {
			continue
		}
		var old *ownership
		if i := slices.IndexFunc(before, func(m ownership) bool { return m.managerID == id }); i >= 0 {
			old = &before[i]
		}
		renew := d.changed
		if id.operation == metav1.ManagedFieldsOperationUpdate {
			renew = w.takes(id, d) != nil
		}
		after = append(after, newOwnership(id, set, stamp, old, renew))
	}
	slices.SortFunc(after, func(a, b ownership) int {
		return cmp.Or(cmp.Compare(a.operation, b.operation), a.time.Compare(b.time.Time), cmp.Compare(a.name, b.name), cmp.Compare(a.part, b.part))
	})
	return after
}

func removeBoth(set fields, d delta) (rest fields, changed bool) {
	rest, changed = difference(set, d.set)
	rest, again := difference(rest, d.removed)
	return rest, changed || again
}

// ownSets returns the sets of the entries of the writing manager after a write.
func (w *write) ownSets(before []ownership, d delta) map[managerID]fields {
	if w.isApply {
		return map[managerID]fields{{w.manager, metav1.ManagedFieldsOperationApply, w.part}: w.apply}
	}
	sets := map[managerID]fields{}
	parts := []subresource{w.part}
	if w.part == allParts {
		parts = []subresource{mainPart, statusPart}
	}
	for _, part := range parts {
		id := managerID{w.manager, metav1.ManagedFieldsOperationUpdate, part}
		taken := w.takes(id, d)
		i := slices.IndexFunc(before, func(m ownership) bool { return m.managerID == id })
		if i < 0 && taken == nil {
			continue
		}
		var old fields
		if i >= 0 {
			old = subtract(before[i].fields, d.removed)
		}
		sets[id] = union(old, taken)
	}
	_, statusSet := d.set["f:status"]
	_, statusGone := d.removed["f:status"]
	if w.rule != nil && (statusSet || statusGone) {
		status := w.kind.part(w.next, w.kind.status)
		owned := fields{"f:status": orMember(w.kind.status.node.paths(status))}
		sets[managerID{w.manager, metav1.ManagedFieldsOperationApply, statusPart}] = pick(owned, w.rule)
		if id := (managerID{w.manager, metav1.ManagedFieldsOperationUpdate, statusPart}); sets[id] != nil {
			sets[id] = drop(sets[id], w.rule)
		}
	}
	return sets
}

// takes returns the changed paths that an entry for updates takes over.
func (w *write) takes(id managerID, d delta) fields {
	set := d.set
	if w.part == allParts && id.part == mainPart {
		set = drop(set, fields{"f:status": member})
	} else if w.part == allParts {
		set = pick(set, fields{"f:status": member})
	}
	if w.rule != nil {
		set = drop(set, w.rule)
	}
	return set
}

// checkOwners returns a conflict if an apply without force changes a field of another manager.
func (w *write) checkOwners(live *item, d delta) error {
	for _, m := range live.managers {
		own := m.name == w.manager && m.operation == metav1.ManagedFieldsOperationApply && m.part == w.part
		if !own && intersects(m.fields, d.set) {
			conflict := fmt.Sprintf("conflict with %q", m.name)
			return apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Message: conflict}},
				"Apply failed with 1 conflict: "+conflict)
		}
	}
	return nil
}

// entries returns the managedFields of an object.
func entries(k *kind, managers []ownership) []metav1.ManagedFieldsEntry {
	all := make([]metav1.ManagedFieldsEntry, len(managers))
	for i := range managers {
		m := &managers[i]
		if m.encoded == nil {
			m.encoded = metav1.NewFieldsV1(m.fields.encode())
		}
		all[i] = metav1.ManagedFieldsEntry{Manager: m.name, Operation: m.operation, APIVersion: k.gvk.GroupVersion().String(), Time: &m.time,
			FieldsType: "FieldsV1", FieldsV1: m.encoded, Subresource: string(m.part)}
	}
	return all
}

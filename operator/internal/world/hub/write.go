package hub

import (
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// subresource is the part of an object that a write concerns.
type subresource string

const (
	mainPart   subresource = ""
	statusPart subresource = "status"
	// allParts is a write of the model, of the object and its status at once.
	allParts subresource = "all"
)

// write is a new version of an object, which the server owns.
type write struct {
	kind    *kind
	manager string
	part    subresource
	next    client.Object
	// isApply means a server-side apply of the paths in apply.
	isApply bool
	apply   fields
	// force lets an apply take fields from other managers. An update always does.
	force bool
	// rule are the paths that this update owns as if the manager had applied them.
	rule fields
}

// create stores a new object without its status.
func (s *Server) create(w write) (*item, error) {
	objects, m := s.storeOf(w.kind), w.kind.metaOf(w.next)
	if m.Name == "" && m.GenerateName != "" {
		m.Name = m.GenerateName + fmt.Sprintf("%05s", strconv.FormatUint(s.version+1, 36))
	}
	key := types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
	switch {
	case m.Name == "":
		return nil, newBadRequest("a %s needs a name", w.kind.gvk.Kind)
	case w.kind.namespaced != (m.Namespace != ""):
		return nil, newBadRequest("%s %s: the namespace is %q, which does not fit the scope of the kind", w.kind.gvk.Kind, m.Name, m.Namespace)
	case m.ResourceVersion != "":
		return nil, newBadRequest("resourceVersion should not be set on objects to be created")
	case objects.byKey[key] != nil:
		return nil, apierrors.NewAlreadyExists(w.kind.resource, m.Name)
	}
	empty := w.kind.newObject()
	w.kind.setStatus(w.next, empty)
	if m.UID == "" {
		// The world gives some objects a UID that does not depend on the order of writes.
		s.uids++
		m.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", s.uids))
	}
	if err := checkAnnotations(w.kind, m); err != nil {
		return nil, err
	}
	m.Generation, m.CreationTimestamp, m.DeletionTimestamp, m.DeletionGracePeriodSeconds = 1, s.stamp(), nil, nil
	changes, _ := w.kind.compare(empty, w.next)
	stored := &item{key: key, managers: w.managers(nil, changes, s.stamp())}
	s.commit(w.kind, stored, w.next)
	objects.put(stored)
	s.link(w.kind, key, nil, m.OwnerReferences)
	s.emit(w.kind, key, nil, w.next, w.manager)
	return stored, nil
}

// update stores a new version of an object. A write that changes nothing makes no version.
func (s *Server) update(live *item, w write) (client.Object, error) {
	old, m := w.kind.metaOf(live.obj), w.kind.metaOf(w.next)
	switch w.part {
	case mainPart:
		w.kind.setStatus(w.next, live.obj)
	case statusPart:
		if w.kind.status == nil {
			return nil, newNotFound(w.kind, live.key)
		}
		part := w.kind.shallowCopy(live.obj)
		w.kind.setStatus(part, w.next)
		w.next, m = part, w.kind.metaOf(part)
	default: // nothing to keep
	}
	m.Namespace, m.Name, m.GenerateName, m.UID, m.CreationTimestamp = old.Namespace, old.Name, old.GenerateName, old.UID, old.CreationTimestamp
	m.Generation, m.DeletionTimestamp, m.DeletionGracePeriodSeconds = old.Generation, old.DeletionTimestamp, old.DeletionGracePeriodSeconds
	if !w.isApply && w.part != mainPart {
		w.rule = s.applied[managedKind{w.kind, w.manager}]
	}
	if err := checkAnnotations(w.kind, m); err != nil {
		return nil, err
	}
	changes, content := w.kind.compare(live.obj, w.next)
	if w.isApply && !w.force {
		if err := w.checkOwners(live, changes); err != nil {
			return nil, err
		}
	}
	managers := w.managers(live.managers, changes, s.stamp())
	if !changes.changed && slices.EqualFunc(managers, live.managers, ownership.equal) {
		return live.obj, nil
	}
	if content {
		m.Generation++
	}
	before := live.obj
	live.managers = managers
	s.commit(w.kind, live, w.next)
	s.link(w.kind, live.key, old.OwnerReferences, m.OwnerReferences)
	if m.DeletionTimestamp != nil && len(m.Finalizers) == 0 {
		s.remove(w.kind, live, w.manager, true)
		return w.next, nil
	}
	s.emit(w.kind, live.key, before, w.next, w.manager)
	return w.next, nil
}

// commit gives an object the next version and stores it.
func (s *Server) commit(k *kind, stored *item, next client.Object) {
	s.version++
	m := k.metaOf(next)
	// JSON omits empty maps and lists, so that a reader never gets them.
	if len(m.Labels) == 0 {
		m.Labels = nil
	}
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
	if len(m.Finalizers) == 0 {
		m.Finalizers = nil
	}
	m.ResourceVersion, m.ManagedFields = strconv.FormatUint(s.version, 10), entries(k, stored.managers)
	stored.obj = next
}

// delete deletes an object, or marks it for deletion if it has finalizers.
func (s *Server) delete(k *kind, key types.NamespacedName, manager string, options *client.DeleteOptions) error {
	live, err := s.live(k, key)
	if err != nil {
		return err
	}
	m := k.metaOf(live.obj)
	if p := options.Preconditions; p != nil {
		if err := checkIdentity(k, key, m, deref(p.ResourceVersion), deref(p.UID)); err != nil {
			return err
		}
	}
	if len(m.Finalizers) == 0 {
		orphan := options.PropagationPolicy != nil && *options.PropagationPolicy == metav1.DeletePropagationOrphan
		s.remove(k, live, manager, !orphan)
		return nil
	}
	if m.DeletionTimestamp != nil {
		return nil
	}
	before, next := live.obj, k.shallowCopy(live.obj)
	now, grace := s.stamp(), int64(0)
	m = k.metaOf(next)
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &now, &grace
	m.Generation++
	s.commit(k, live, next)
	s.emit(k, live.key, before, next, manager)
	return nil
}

// remove removes an object and, if cascade is set, deletes its dependents.
func (s *Server) remove(k *kind, live *item, manager string, cascade bool) {
	m := k.metaOf(live.obj)
	s.storeOf(k).delete(live.key)
	s.link(k, live.key, m.OwnerReferences, nil)
	s.version++
	s.emit(k, live.key, live.obj, nil, manager)
	if !cascade {
		return
	}
	for _, d := range s.dependentsOf(m.UID) {
		_ = s.delete(d.kind, d.key, "garbage-collector", &client.DeleteOptions{}) // one that an earlier deletion removed
	}
}

// link keeps dependents up to date.
func (s *Server) link(k *kind, key types.NamespacedName, old, next []metav1.OwnerReference) {
	if slices.EqualFunc(old, next, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) {
		return
	}
	r := reference{k, key}
	for _, owner := range old {
		delete(s.dependents[owner.UID], r)
		if len(s.dependents[owner.UID]) == 0 {
			delete(s.dependents, owner.UID)
		}
	}
	for _, owner := range next {
		if s.dependents[owner.UID] == nil {
			s.dependents[owner.UID] = map[reference]bool{}
		}
		s.dependents[owner.UID][r] = true
	}
}

func (s *Server) stamp() metav1.Time { return metav1.NewTime(s.now()).Rfc3339Copy() }

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

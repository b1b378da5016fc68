package world

import (
	"iter"
	"slices"
)

// podList has pods in the order in which they were added. A pod is in one list at a time.
type podList struct {
	list []*pod // nil = was removed
	gone int
}

func (l *podList) add(p *pod) {
	p.at = len(l.list)
	l.list = append(l.list, p)
}

// remove takes a pod out and reports whether it was in the list.
func (l *podList) remove(p *pod) bool {
	if p.at >= len(l.list) || l.list[p.at] != p {
		return false
	}
	l.list[p.at] = nil
	if l.gone++; 2*l.gone <= len(l.list) {
		return true
	}
	l.list, l.gone = slices.DeleteFunc(l.list, func(p *pod) bool { return p == nil }), 0
	for i, p := range l.list {
		p.at = i
	}
	return true
}

func (l *podList) isEmpty() bool { return l.gone == len(l.list) }

// all are the pods, which must not be added or removed meanwhile.
func (l *podList) all() iter.Seq[*pod] {
	return func(yield func(*pod) bool) {
		for _, p := range l.list {
			if p != nil && !yield(p) {
				return
			}
		}
	}
}

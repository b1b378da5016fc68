package hub

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// fields is a set of paths in the form of FieldsV1: "f:name" is a field, "k:{…}" an item of a
// list by its key, "." the value itself. An entry without children is a member. Sets share
// subtrees and are not changed after they have been built.
type fields map[string]fields

// member is a path without children.
var member = fields{}

// itemPath is the path of an item of a keyedList.
func itemPath(name, key string) string {
	return `k:{"` + name + `":` + string(appendJSON(nil, key)) + `}`
}

// isMember reports whether the path of the set itself belongs to it.
func (s fields) isMember() bool {
	_, self := s["."]
	return self || len(s) == 0
}

// union returns the paths of either set.
func union(a, b fields) fields {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	if len(a) == 0 && len(b) == 0 {
		return member
	}
	sum := make(fields, max(len(a), len(b)))
	maps.Copy(sum, a)
	for path, sub := range b {
		if mine, ok := sum[path]; ok {
			sub = union(mine, sub)
		}
		sum[path] = sub
	}
	if len(a) == 0 || len(b) == 0 {
		sum["."] = member
	}
	return sum
}

// subtract returns the paths of a that b does not have; nil if there is none.
func subtract(a, b fields) fields {
	rest, _ := difference(a, b)
	return rest
}

// difference is subtract, and reports whether a path was removed.
func difference(a, b fields) (rest fields, changed bool) {
	if a == nil || b == nil {
		return a, false
	}
	if len(a) == 0 || len(b) == 0 {
		switch {
		case !a.isMember() || !b.isMember():
			return a, false
		case len(a) == 0:
			return nil, true
		}
		b = fields{".": member}
	}
	rest = a
	for path, sub := range b {
		left, removed := difference(a[path], sub)
		if !removed {
			continue
		}
		if !changed {
			rest, changed = maps.Clone(a), true
		}
		if left == nil {
			delete(rest, path)
		} else {
			rest[path] = left
		}
	}
	if len(rest) == 0 {
		return nil, changed
	}
	return rest, changed
}

// intersects reports whether the sets have a path in common.
func intersects(a, b fields) bool {
	if a == nil || b == nil {
		return false
	}
	if a.isMember() && b.isMember() {
		return true
	}
	for path, sub := range a {
		if other, ok := b[path]; ok && intersects(sub, other) {
			return true
		}
	}
	return false
}

// pick returns the part of a set below the paths of a rule.
func pick(a, rule fields) fields {
	if len(rule) == 0 {
		return a
	}
	picked := fields{}
	for path, sub := range rule {
		if mine, ok := a[path]; ok {
			if part := pick(mine, sub); part != nil {
				picked[path] = part
			}
		}
	}
	if len(picked) == 0 {
		return nil
	}
	return picked
}

// drop returns the part of a set outside of the paths of a rule.
func drop(a, rule fields) fields {
	if a == nil || len(rule) == 0 {
		return nil
	}
	rest := fields{}
	for path, sub := range a {
		if below, ok := rule[path]; ok {
			if sub = drop(sub, below); sub == nil {
				continue
			}
		}
		rest[path] = sub
	}
	if len(rest) == 0 && len(a) > 0 {
		return nil
	}
	return rest
}

func equalFields(a, b fields) bool {
	return (a == nil) == (b == nil) && maps.EqualFunc(a, b, equalFields)
}

// encode returns the set as FieldsV1.
func (s fields) encode() string { return string(s.appendTo(nil)) }

func (s fields) appendTo(text []byte) []byte {
	text = append(text, '{')
	for i, path := range slices.Sorted(maps.Keys(s)) {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(appendJSON(text, path), ':')
		text = s[path].appendTo(text)
	}
	return append(text, '}')
}

// appendJSON appends a string in JSON.
func appendJSON(text []byte, s string) []byte {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '<' || r == '>' || r == '&' }) {
		quoted, _ := json.Marshal(s) // a string can always be encoded
		return append(text, quoted...)
	}
	text = append(text, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			text = append(text, '\\')
		}
		text = append(text, s[i])
	}
	return append(text, '"')
}

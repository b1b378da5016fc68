package hub

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patch is a JSON patch or a merge patch. Only the top-level fields that it names are converted
// to JSON and back.
type patch struct {
	parts map[string]bool
	apply func(document []byte) ([]byte, error)
}

func parsePatch(patchType types.PatchType, data []byte) (*patch, error) {
	p := &patch{parts: map[string]bool{}}
	switch patchType {
	case types.JSONPatchType:
		operations, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return nil, newBadRequest("decode the patch: %v", err)
		}
		for _, o := range operations {
			for _, name := range []string{"path", "from"} {
				var path string
				if text := o[name]; text != nil && json.Unmarshal(*text, &path) == nil {
					part, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
					p.parts[part] = true
				}
			}
		}
		p.apply = operations.Apply
	case types.MergePatchType:
		var parts map[string]json.RawMessage
		if err := json.Unmarshal(data, &parts); err != nil {
			return nil, newBadRequest("decode the patch: %v", err)
		}
		for part := range parts {
			p.parts[part] = true
		}
		p.apply = func(document []byte) ([]byte, error) { return jsonpatch.MergePatch(document, data) }
	default:
		return nil, newBadRequest("the hub does not support patches of type %s", patchType)
	}
	return p, nil
}

// patch applies a patch to the live object.
func (s *Server) patch(live *item, w write, p *patch) (client.Object, error) {
	document := map[string]any{}
	for i := range w.kind.node.fields {
		f := &w.kind.node.fields[i]
		if !p.parts[f.name] {
			continue
		}
		if f.name == "metadata" {
			m := *w.kind.metaOf(live.obj)
			m.ManagedFields = nil
			document[f.name] = &m
		} else {
			document[f.name] = w.kind.part(live.obj, f).Interface()
		}
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	patched, err := p.apply(text)
	if err != nil {
		return nil, newInvalid(fmt.Errorf("the server rejected our request due to an error in our request: %w", err))
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(patched, &parts); err != nil {
		return nil, newInvalid(err)
	}
	w.next = w.kind.shallowCopy(live.obj)
	for i := range w.kind.node.fields {
		f := &w.kind.node.fields[i]
		if !p.parts[f.name] || (f.name == "status") != (w.part == statusPart) && f.name != "metadata" {
			continue
		}
		value := reflect.New(w.kind.part(w.next, f).Type())
		if text := parts[f.name]; text != nil {
			if err := json.Unmarshal(text, value.Interface()); err != nil {
				return nil, newInvalid(err)
			}
		}
		w.kind.part(w.next, f).Set(value.Elem())
	}
	m := w.kind.metaOf(w.next)
	if err := checkIdentity(w.kind, live.key, w.kind.metaOf(live.obj), m.ResourceVersion, m.UID); err != nil {
		return nil, err
	}
	return s.update(live, w)
}

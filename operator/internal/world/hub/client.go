package hub

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Client returns a client that reads and writes the live objects at once. manager is the field
// manager of writes that do not name one.
func (s *Server) Client(manager string) client.Client {
	return &liveClient{server: s, manager: manager, serve: func(_ context.Context, _ Request, do func() error) error { return do() }}
}

// liveClient is a client without a cache.
type liveClient struct {
	server  *Server
	manager string
	serve   func(ctx context.Context, r Request, do func() error) error
}

func (c *liveClient) Scheme() *runtime.Scheme     { return c.server.scheme }
func (c *liveClient) RESTMapper() meta.RESTMapper { return c.server.mapper }

func (c *liveClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, c.server.scheme)
}

func (c *liveClient) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	k, err := c.server.kindOf(obj)
	return err == nil && k.namespaced, err
}

func (c *liveClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	k, err := c.server.kindOf(obj)
	if err != nil {
		return err
	}
	return c.serve(ctx, Request{Verb: "get", Kind: k.gvk, Key: key}, func() error {
		c.server.mu.Lock()
		live, err := c.server.live(k, key)
		if err != nil {
			c.server.mu.Unlock()
			return err
		}
		stored := live.obj
		c.server.mu.Unlock()
		return k.copyTo(obj, stored, true)
	})
}

func (c *liveClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	k, err := c.server.kindOf(list)
	if err != nil {
		return err
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	return c.serve(ctx, Request{Verb: "list", Kind: k.gvk, Key: types.NamespacedName{Namespace: options.Namespace}}, func() error {
		selected, err := fieldsOfMetadata(options.FieldSelector)
		if err != nil {
			return err
		}
		c.server.mu.Lock()
		found := selectItems(c.server.storeOf(k).sorted.in(options.Namespace), options, selected)
		list.SetResourceVersion(fmt.Sprint(c.server.version))
		c.server.mu.Unlock()
		return k.setItems(list, found, options.UnsafeDisableDeepCopy == nil || !*options.UnsafeDisableDeepCopy, false)
	})
}

// change is a write of one object: what the methods of the client have in common.
func (c *liveClient) change(ctx context.Context, verb string, obj client.Object, part subresource, manager string, dryRun []string,
	do func(w write, key types.NamespacedName) (client.Object, error)) error {
	k, err := c.server.kindOf(obj)
	if err != nil {
		return err
	}
	if len(dryRun) > 0 {
		return newBadRequest("the hub does not support dry runs")
	}
	if manager == "" {
		manager = c.manager
	}
	key := client.ObjectKeyFromObject(obj)
	return c.serve(ctx, Request{Verb: verb, Kind: k.gvk, Key: key, Subresource: string(part)}, func() error {
		var stored client.Object
		err := c.server.locked(func() (err error) {
			c.server.storeOf(k) // builds the schema
			stored, err = do(write{kind: k, manager: manager, part: part}, key)
			return err
		})
		if err != nil || stored == nil {
			return err
		}
		return k.copyTo(obj, stored, true)
	})
}

func (c *liveClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	options := (&client.CreateOptions{}).ApplyOptions(opts)
	return c.change(ctx, "create", obj, mainPart, options.FieldManager, options.DryRun, func(w write, _ types.NamespacedName) (_ client.Object, err error) {
		if w.next, err = w.kind.typed(obj); err != nil {
			return nil, newBadRequest("%v", err)
		}
		created, err := c.server.create(w)
		if err != nil {
			return nil, err
		}
		return created.obj, nil
	})
}

func (c *liveClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	options := (&client.UpdateOptions{}).ApplyOptions(opts)
	return c.update(ctx, obj, mainPart, options)
}

func (c *liveClient) update(ctx context.Context, obj client.Object, part subresource, options *client.UpdateOptions) error {
	return c.change(ctx, "update", obj, part, options.FieldManager, options.DryRun, func(w write, key types.NamespacedName) (client.Object, error) {
		live, err := c.server.live(w.kind, key)
		if err != nil {
			return nil, err
		}
		if obj.GetResourceVersion() == "" {
			return nil, newInvalid(fmt.Errorf("%s %s is invalid: metadata.resourceVersion must be specified for an update", w.kind.gvk.Kind, key))
		}
		if err := checkIdentity(w.kind, key, w.kind.metaOf(live.obj), obj.GetResourceVersion(), obj.GetUID()); err != nil {
			return nil, err
		}
		if w.next, err = w.kind.typed(obj); err != nil {
			return nil, newBadRequest("%v", err)
		}
		return c.server.update(live, w)
	})
}

func (c *liveClient) Patch(ctx context.Context, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
	return c.patch(ctx, obj, p, mainPart, (&client.PatchOptions{}).ApplyOptions(opts))
}

func (c *liveClient) patch(ctx context.Context, obj client.Object, p client.Patch, part subresource, options *client.PatchOptions) error {
	data, err := p.Data(obj)
	if err != nil {
		return err
	}
	if p.Type() == types.ApplyPatchType {
		config := &unstructured.Unstructured{}
		if err := json.Unmarshal(data, &config.Object); err != nil {
			return newBadRequest("decode the patch: %v", err)
		}
		return c.applyTo(ctx, obj, config, part, options.FieldManager, options.DryRun, deref(options.Force))
	}
	parsed, err := parsePatch(p.Type(), data)
	if err != nil {
		return err
	}
	return c.change(ctx, "patch", obj, part, options.FieldManager, options.DryRun, func(w write, key types.NamespacedName) (client.Object, error) {
		live, err := c.server.live(w.kind, key)
		if err != nil {
			return nil, err
		}
		return c.server.patch(live, w, parsed)
	})
}

func (c *liveClient) Apply(ctx context.Context, config runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return c.apply(ctx, config, mainPart, (&client.ApplyOptions{}).ApplyOptions(opts))
}

func (c *liveClient) apply(ctx context.Context, config runtime.ApplyConfiguration, part subresource, options *client.ApplyOptions) error {
	u := &unstructured.Unstructured{}
	content, isUnstructured := config.(runtime.Unstructured)
	if isUnstructured {
		u.Object = content.UnstructuredContent()
	} else if text, err := json.Marshal(config); err != nil {
		return err
	} else if err := u.UnmarshalJSON(text); err != nil {
		return err
	}
	response := &unstructured.Unstructured{}
	response.SetGroupVersionKind(u.GroupVersionKind())
	response.SetNamespace(u.GetNamespace())
	response.SetName(u.GetName())
	if err := c.applyTo(ctx, response, u, part, options.FieldManager, options.DryRun, deref(options.Force)); err != nil {
		return err
	}
	if isUnstructured {
		content.SetUnstructuredContent(response.Object)
		return nil
	}
	text, err := json.Marshal(response)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, config)
}

func (c *liveClient) applyTo(ctx context.Context, obj client.Object, config *unstructured.Unstructured, part subresource, manager string, dryRun []string, force bool) error {
	return c.change(ctx, "apply", obj, part, manager, dryRun, func(w write, _ types.NamespacedName) (client.Object, error) {
		w.force = force
		return c.server.apply(w, config)
	})
}

func (c *liveClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	return c.change(ctx, "delete", obj, mainPart, "", options.DryRun, func(w write, key types.NamespacedName) (client.Object, error) {
		return nil, c.server.delete(w.kind, key, w.manager, options)
	})
}

// DeleteAllOf deletes the objects that a list with the same options contains, one after another.
func (c *liveClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	options := (&client.DeleteAllOfOptions{}).ApplyOptions(opts)
	k, err := c.server.kindOf(obj)
	if err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(k.gvk.GroupVersion().WithKind(k.gvk.Kind + "List"))
	if err := c.List(ctx, list, &options.ListOptions); err != nil {
		return err
	}
	for i := range list.Items {
		if err := client.IgnoreNotFound(c.Delete(ctx, &list.Items[i], &options.DeleteOptions)); err != nil {
			return err
		}
	}
	return nil
}

package hub

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Status returns the writer of the status subresource.
func (c *liveClient) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource returns the client of a subresource. Only "status" exists.
func (c *liveClient) SubResource(name string) client.SubResourceClient {
	return &statusClient{client: c, name: name}
}

// statusClient writes the status of objects.
type statusClient struct {
	client *liveClient
	name   string
}

func (c *statusClient) check() error {
	if c.name != string(statusPart) {
		return newBadRequest("the hub has no subresource %s", c.name)
	}
	return nil
}

func (c *statusClient) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return newBadRequest("the hub does not support reading the subresource %s", c.name)
}

func (c *statusClient) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return newBadRequest("the hub does not support creating the subresource %s", c.name)
}

func (c *statusClient) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	options := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	if options.SubResourceBody != nil {
		return newBadRequest("the hub does not support a body of the subresource")
	}
	if err := c.check(); err != nil {
		return err
	}
	return c.client.update(ctx, obj, statusPart, &options.UpdateOptions)
}

func (c *statusClient) Patch(ctx context.Context, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	if options.SubResourceBody != nil {
		return newBadRequest("the hub does not support a body of the subresource")
	}
	if err := c.check(); err != nil {
		return err
	}
	return c.client.patch(ctx, obj, p, statusPart, &options.PatchOptions)
}

func (c *statusClient) Apply(ctx context.Context, config runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	options := (&client.SubResourceApplyOptions{}).ApplyOpts(opts)
	if options.SubResourceBody != nil {
		return newBadRequest("the hub does not support a body of the subresource")
	}
	if err := c.check(); err != nil {
		return err
	}
	return c.client.apply(ctx, config, statusPart, &options.ApplyOptions)
}

package device

import "context"

type beatKey struct{}

// WithBeat lets whoever waits for a reading hear of each call that returned.
func WithBeat(ctx context.Context, beat func()) context.Context {
	return context.WithValue(ctx, beatKey{}, beat)
}

// Beat tells that a call of the vendor's library has returned, so that a reading of
// many slow calls is not taken for one that hangs.
func Beat(ctx context.Context) {
	if beat, ok := ctx.Value(beatKey{}).(func()); ok {
		beat()
	}
}

package device

import "context"

type progressKey struct{}

// WithProgress returns a context whose ReportProgress calls onCall. The collector uses
// it to restart its deadline after each completed library call.
func WithProgress(ctx context.Context, onCall func()) context.Context {
	return context.WithValue(ctx, progressKey{}, onCall)
}

// ReportProgress reports that a call of the vendor's library has returned. Without such
// reports, the collector would take a reading of many slow calls for a hung device.
func ReportProgress(ctx context.Context) {
	if onCall, ok := ctx.Value(progressKey{}).(func()); ok {
		onCall()
	}
}

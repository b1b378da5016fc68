package query

import (
	"context"
	"time"
)

// Querier asks one instant query.
type Querier interface {
	// Query evaluates expr at the given time. A failure is an *Error.
	Query(ctx context.Context, expr string, at time.Time) (Answer, error)
}

// Sample is one series of an instant vector. Value may be NaN or infinite.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Answer is what a source said.
type Answer struct {
	// Samples of the instant vector; a scalar is one sample without labels.
	Samples []Sample
	// Warnings may mean that something is missing; Infos never do.
	Warnings, Infos []string
	// Failed holds the clusters whose own endpoint did not answer, and why.
	// It is used only when each cluster has its own endpoint.
	Failed map[string]string
	// Partial says that some stores did not answer and the source was asked for
	// what the others hold: a cluster may be absent or too small.
	Partial bool
	// Duration of the question, with retries and without waiting for its turn.
	Duration time.Duration
}

// Func makes a function a Querier.
type Func func(ctx context.Context, expr string, at time.Time) (Answer, error)

// Query calls f.
func (f Func) Query(ctx context.Context, expr string, at time.Time) (Answer, error) {
	return f(ctx, expr, at)
}

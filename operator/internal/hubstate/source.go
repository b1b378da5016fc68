package hubstate

import (
	"cmp"
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// ErrSourceNotRegistered is returned for a MetricsSource that exists on the hub and is not
// registered yet, as right after the start of the operator. Try again after timing.SourceRetry.
var ErrSourceNotRegistered = errors.New("the MetricsSource is not registered yet")

// Source returns the client of a MetricsSource. unusable says why it can't be used; its text is
// meant for a condition. err is a failure of the hub, or ErrSourceNotRegistered.
func Source(ctx context.Context, reader client.Reader, sources *query.Sources, name string) (querier query.Querier, info query.SourceInfo, unusable, err error) {
	querier, info, unusable = sources.For(name)
	if !errors.Is(unusable, query.ErrNoSource) {
		return querier, info, unusable, nil
	}
	exists, err := Find(ctx, reader, client.ObjectKey{Name: name}, &v1alpha1.MetricsSource{})
	if exists {
		err = cmp.Or(err, ErrSourceNotRegistered)
	}
	return nil, info, unusable, err
}

package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/fleet"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
)

// maxNotes is the number of missing facts that a page names.
const maxNotes = 10

// view is what one request may see: the snapshot of its user, read with the rights of the request.
type view struct {
	options  *options
	app      *command.App // its output is colored, for the parts of cells
	snapshot *snapshot
	hub      client.Reader
	notes    notes
}

// notes are facts that a page lacks, each with the reason.
type notes []string

// add adds a note once.
func (n *notes) add(text string) {
	switch {
	case slices.Contains(*n, text):
	case len(*n) < maxNotes:
		*n = append(*n, text)
	case len(*n) == maxNotes:
		*n = append(*n, "and more")
	}
}

// newView returns a view with the user's own credentials or, if token is not empty, with this token alone.
func (o *options) newView(a *command.App, token string, s *snapshot) *view {
	v := &view{options: o, snapshot: s}
	app := *a
	v.app = &app
	if o.passthrough {
		v.app = hubclient.WithToken(a, token)
	}
	v.app.Paint = true
	v.hub = reader{hub: &lateHub{app: v.app}, snapshot: s}
	return v
}

// missing notes an error of reading the objects, and reports whether there is one.
func (v *view) missing(objects string, err error) bool {
	if err != nil {
		v.notes.add(hubclient.Reading(objects, err).Error())
	}
	return err != nil
}

// lateHub connects when it is read first: the snapshot may have all that a page needs.
type lateHub struct {
	app    *command.App
	client client.Client
}

func (h *lateHub) connect() (err error) {
	if h.client == nil {
		h.client, _, err = hubclient.Connect(h.app)
	}
	return err
}

// Get implements client.Reader.
func (h *lateHub) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := h.connect(); err != nil {
		return err
	}
	return h.client.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (h *lateHub) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := h.connect(); err != nil {
		return err
	}
	return h.client.List(ctx, list, opts...)
}

// withWarnings runs a read of metrics, and returns its value with the warnings that it writes.
func withWarnings[T any](ctx context.Context, v *view, key string, read func(ctx context.Context, a *command.App) (T, error)) (T, error) {
	type warned struct {
		value    T
		warnings []string
	}
	found, err := remember(ctx, v.snapshot, key, func(ctx context.Context) (warned, error) {
		var written bytes.Buffer
		app := *v.app
		app.ErrOut = &written
		value, err := read(ctx, &app)
		return warned{value, strings.FieldsFunc(written.String(), func(r rune) bool { return r == '\n' })}, err
	})
	for _, warning := range found.warnings {
		v.notes.add(strings.TrimPrefix(warning, "warning: "))
	}
	return found.value, err
}

// scores returns the scores of all clusters, by cluster.
func (v *view) scores(ctx context.Context) (map[string]map[string]gate.Score, error) {
	return remember(ctx, v.snapshot, "scores", func(ctx context.Context) (map[string]map[string]gate.Score, error) {
		return hubclient.ReadScores(ctx, v.hub)
	})
}

// mayReadMetrics returns why series are not shown. The proxy of other users may let in anyone: only those who may read the
// scores of all clusters may see the series, which are queried with other credentials than theirs.
func (v *view) mayReadMetrics(ctx context.Context) error {
	if v.options.passthrough && v.options.prometheus.URL == "" {
		return errors.New("kubectl plimsoll ui runs with --token-passthrough, and without --prometheus")
	}
	if _, err := v.scores(ctx); v.options.passthrough && err != nil {
		return hubclient.Reading("only users who may list AddOnPlacementScores see metrics", err)
	}
	return nil
}

// devices returns the devices of all clusters, by cluster.
func (v *view) devices(ctx context.Context) (map[string][]fleet.Devices, error) {
	if err := v.mayReadMetrics(ctx); err != nil {
		return nil, err
	}
	return withWarnings(ctx, v, "devices", func(ctx context.Context, a *command.App) (map[string][]fleet.Devices, error) {
		return fleet.QueryDevices(ctx, a, &v.options.prometheus)
	})
}

// managedClusters returns the clusters of the hub, by name.
func (v *view) managedClusters(ctx context.Context) map[string]*clusterv1.ManagedCluster {
	list, err := hubstate.ManagedClusters(ctx, v.hub)
	v.missing("ManagedClusters", err)
	clusters := map[string]*clusterv1.ManagedCluster{}
	for i := range list {
		clusters[list[i].Name] = &list[i]
	}
	return clusters
}

// explainForbidden says what to do if the user may not list workloads of all namespaces.
func explainForbidden(err error, namespace string) error {
	if namespace == "" && apierrors.IsForbidden(err) {
		return fmt.Errorf("workloads of all namespaces: %w: choose a namespace above", err)
	}
	return hubclient.Reading("workloads", err)
}

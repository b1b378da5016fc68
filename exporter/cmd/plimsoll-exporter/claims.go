package main

import (
	"context"
	"fmt"
	"log/slog"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/kube"
)

// readClaims reads the shares of resource claims if --kubernetes-claim-shares is set. The returned
// function stops that and waits for its end.
func (o *options) readClaims(ctx context.Context, config *collector.Config, log *slog.Logger) (stop func(), err error) {
	if !o.pods.claimShares {
		return func() {}, nil
	}
	server, err := o.pods.apiServer()
	if err != nil && !o.strict {
		log.Warn("continuing without the shares of resource claims", "err", err)
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w (--strict)", err)
	}
	r, err := kube.NewClaimReader(server, o.node, log)
	if err != nil {
		return nil, err
	}
	config.Claims = r
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	waiting, end := context.WithTimeout(ctx, firstListTimeout)
	defer end()
	if !r.WaitForList(waiting) {
		log.Warn("the API server has not listed the node's ResourceSlices yet; continuing without the shares of resource claims", "metric", "plimsoll_exporter_resource_slices_reachable")
	}
	return func() { cancel(); <-done }, nil
}

// checkClaimShares checks that the API server lists the node's ResourceSlices.
func (o *options) checkClaimShares(ctx context.Context) finding {
	f := finding{check: "shares of claims"}
	server, err := o.pods.apiServer()
	if err == nil {
		var n int
		n, err = kube.CountSharedDevices(ctx, server, o.node)
		f.detail = fmt.Sprintf("%d devices that several claims can allocate", n)
	}
	f.err = err
	return f
}

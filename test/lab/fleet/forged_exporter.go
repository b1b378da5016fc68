package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"
)

// ForgeExporter ends the exporter of a node. In its place, a program claims a number of free devices of a model.
func (f *Fleet) ForgeExporter(node string, model GPUModel, devices int) error {
	s := f.node(node)
	if s == nil {
		return fmt.Errorf("the lab has no node %q", node)
	}
	if err := f.procs.End(s.exporter(), syscall.SIGKILL); err != nil {
		return err
	}
	forge := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "plimsoll_exporter_last_collection_timestamp_seconds{node=%q} %d\n", node, time.Now().Unix()) // the scrape fails
		for _, state := range []string{"free", "allocatable"} {
			_, _ = fmt.Fprintf(w, "plimsoll_node_devices{node=%q,resource=%q,model=%q,state=%q} %d\n", node, s.resource, model.Label, state, devices)
		}
	}
	server := &http.Server{Addr: s.exporterAddr, Handler: http.HandlerFunc(forge), ReadHeaderTimeout: time.Minute}
	listener, err := net.Listen("tcp", s.exporterAddr)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.forged = server
	go func() { _ = server.Serve(listener) }() // returns after EndForgery, or with the process
	return nil
}

// EndForgery ends the program that ForgeExporter started, and starts the exporter. Without such a program it does nothing.
func (f *Fleet) EndForgery(ctx context.Context, node string) error {
	s := f.node(node)
	if s == nil {
		return fmt.Errorf("the lab has no node %q", node)
	}
	f.mu.Lock()
	server := s.forged
	s.forged = nil
	f.mu.Unlock()
	if server == nil {
		return nil
	}
	return errors.Join(server.Close(), f.startExporter(ctx, s))
}

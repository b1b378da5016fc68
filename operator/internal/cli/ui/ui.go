// Package ui serves pages about the fleet, the queue, a job, and policies and gates: the command ui.
package ui

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/explanation"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
)

// options are the flags of the command.
type options struct {
	port              int
	open              bool
	listen            string
	passthrough       bool
	certFile, keyFile string
	refresh           time.Duration
	prometheus        prometheus.Flags
	operator          explanation.OperatorFlags
}

// New returns the command ui.
func New(a *command.App) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve pages about the fleet, the queue, a job, and policies and gates",
		Long: `Serve pages about the fleet, the queue, a job, and policies and gates, until you press Ctrl-C.

The pages show what top, explain and report show, with your own rights. They are served on 127.0.0.1, to
browsers that have opened the printed address: it contains a key, because other users of this machine can
connect, too. Free devices and scores over time are queried from a Prometheus or Thanos.

With --token-passthrough, the pages are for other users, on the address of --listen, behind a proxy that
authenticates them: each request to the hub has the bearer token of the user's request, and no other
credential.

` + prometheus.Help + "\n\n" + explanation.OperatorHelp,
		Example: "  kubectl plimsoll ui --open",
		Args:    command.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.check(), o.prometheus.Check()); err != nil {
				return err
			}
			return o.serve(cmd.Context(), a)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.port, "port", 0, "port on 127.0.0.1 (default any free port)")
	flags.BoolVar(&o.open, "open", false, "open the pages in a browser")
	flags.StringVar(&o.listen, "listen", "", "address for --token-passthrough, such as :8080")
	flags.BoolVar(&o.passthrough, "token-passthrough", false, "serve users that a proxy has authenticated, each with the bearer token of the request")
	flags.StringVar(&o.certFile, "serving-cert", "", "file with the certificate of --listen; a new one is read when the file changes")
	flags.StringVar(&o.keyFile, "serving-key", "", "file with the key of --serving-cert")
	flags.DurationVar(&o.refresh, "refresh", 5*time.Second, "time after which pages read the hub again, at least 100ms, with --token-passthrough at most 2m")
	o.prometheus.AddHubSource(flags)
	o.prometheus.Add(cmd)
	o.operator.Add(flags)
	return cmd
}

// check returns a usage error if flags contradict each other.
func (o *options) check() error {
	switch {
	case o.passthrough != (o.listen != ""):
		return command.Usagef("--listen and --token-passthrough must be set together: without the tokens of users, pages are served on 127.0.0.1 only")
	case o.passthrough && (o.open || o.port != 0):
		return command.Usagef("--open and --port are not for --token-passthrough")
	case o.passthrough && o.operator.HasAddress():
		return command.Usagef("--operator-url and --token-file are not for --token-passthrough: the operator is reached with the token of each user")
	case (o.certFile == "") != (o.keyFile == ""):
		return command.Usagef("--serving-cert and --serving-key must be set together")
	case o.certFile != "" && !o.passthrough:
		return command.Usagef("--serving-cert is for --token-passthrough")
	case o.passthrough && o.refresh > maxAge:
		return command.Usagef("--refresh must be at most %s with --token-passthrough, is %s: a revoked token reads for as long", maxAge, o.refresh)
	case o.refresh < 100*time.Millisecond:
		return command.Usagef("--refresh must be at least 100ms, is %s", o.refresh)
	}
	return nil
}

// serve serves the pages until ctx ends.
func (o *options) serve(ctx context.Context, a *command.App) error {
	address := o.listen
	if !o.passthrough {
		address = fmt.Sprintf("127.0.0.1:%d", o.port)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	s := newServer(o, a)
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(a.ErrOut, "", 0), BaseContext: func(net.Listener) context.Context { return ctx },
	}
	if o.passthrough {
		server.Handler = s.handler(bearerAccess{})
		_, _ = fmt.Fprintf(a.Out, "serving users with their tokens on %s\n", listener.Addr())
	} else {
		access := newKeyAccess(listener.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // a listener of TCP
		server.Handler = s.handler(access)
		_, _ = fmt.Fprintln(a.Out, access.url(access.key))
		if o.open {
			go func() { // it may run the browser, and end with it
				if err := openBrowser(ctx, access.url(access.issueOnce())); err != nil && ctx.Err() == nil {
					_, _ = fmt.Fprintf(a.ErrOut, "can't open a browser, open the address yourself: %v\n", err)
				}
			}()
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // streams never end by themselves
	defer stop()
	if o.certFile != "" {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
			return &pair, err
		}}
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// openBrowser opens an address in the user's browser.
func openBrowser(ctx context.Context, url string) error {
	switch runtime.GOOS {
	case "darwin":
		return exec.CommandContext(ctx, "open", url).Run()
	case "windows":
		return exec.CommandContext(ctx, "rundll32", "url.dll,FileProtocolHandler", url).Run()
	}
	return exec.CommandContext(ctx, "xdg-open", url).Run()
}

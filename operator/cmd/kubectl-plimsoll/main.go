// Command kubectl-plimsoll is a kubectl plugin, called as kubectl plimsoll.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	_ "golang.org/x/crypto/x509roots/fallback" // the image has no CA certificates of its own

	"plimsoll.dev/plimsoll/operator/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(cli.Main(ctx, cli.Args(os.Args), os.Stdin, os.Stdout, os.Stderr))
}

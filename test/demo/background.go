package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// background builds and starts a fleet while the embedded part of the demo runs.
type background struct {
	writer io.Writer
	done   chan struct{} // closed once fleet and err are set
	fleet  *fleet.Fleet
	err    error
	mu     sync.Mutex
	last   string // line of progress
	isLive bool   // lines go to writer
}

// startFleet returns at once. failed is called if the fleet does not start.
func startFleet(ctx context.Context, dir string, out io.Writer, failed func(error)) *background {
	b := &background{writer: out, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		if b.fleet, b.err = fleet.Up(ctx, fleet.Options{Dir: dir, Progress: b}); b.err != nil {
			failed(b.err)
		}
	}()
	return b
}

// Write receives whole lines of progress.
func (b *background) Write(lines []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.TrimSpace(string(lines))
	b.last = text[strings.LastIndexByte(text, '\n')+1:]
	if b.isLive {
		return b.writer.Write(lines)
	}
	return len(lines), nil
}

// progress returns the last line of progress.
func (b *background) progress() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimPrefix(b.last, "lab: ")
}

// wait prints the progress until the fleet is up.
func (b *background) wait() (*fleet.Fleet, error) {
	b.mu.Lock()
	b.isLive = true
	if b.last != "" {
		fmt.Fprintln(b.writer, b.last)
	}
	b.mu.Unlock()
	<-b.done
	return b.fleet, b.err
}

package components

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// goBuild runs `go build -v` and returns the processor time that it took. Every 15 seconds it
// reports the number of compiled packages to out. It always uses cgo: the setting is part of
// the key of Go's build cache, and the demo and the race detector need cgo.
func goBuild(ctx context.Context, dir, what string, args []string, out io.Writer) (cpu time.Duration, err error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off")
	if os.Getenv("GOGC") == "" {
		// The compiler takes a tenth to a fifth less time, and up to 650 instead of 450 MiB.
		cmd.Env = append(cmd.Env, "GOGC=400")
	}
	// The build ends with this process, even if it is killed. The kernel sends Pdeathsig
	// when the thread ends that forked the child, so the thread must not end before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start go build of %s: %w", what, err)
	}
	var compiled atomic.Int64
	var tail outputTail
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			if !strings.Contains(lines.Text(), " ") { // not a warning of the C compiler
				compiled.Add(1)
			}
			tail.add(lines.Text())
		}
	}()
	start, tick := time.Now(), time.NewTicker(15*time.Second)
	defer tick.Stop()
	for isRunning := true; isRunning; {
		select {
		case <-tick.C:
			fmt.Fprintf(out, "lab: building %-18s %6s  %d packages compiled\n", what, time.Since(start).Round(time.Second), compiled.Load())
		case <-done:
			isRunning = false
		}
	}
	err = cmd.Wait()
	if cmd.ProcessState != nil {
		cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err != nil {
		return cpu, fmt.Errorf("go build of %s in %s failed (%w); it needs the Go module proxy and about 2 GiB of disk; its last lines:\n%s",
			what, dir, err, tail.String())
	}
	return cpu, nil
}

// outputTail keeps the last 20 lines of an output.
type outputTail struct {
	mu    sync.Mutex
	lines []string
}

func (r *outputTail) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	if len(r.lines) > 20 {
		r.lines = r.lines[1:]
	}
}

func (r *outputTail) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

package fleet

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A user kills a program: the error names the program, its process ID, the signal and
// what the program wrote last.
func TestKilledProgramIsReportedWithPidAndReason(t *testing.T) {
	p := newProcesses(t.TempDir())
	changes := make(chan struct{}, 10)
	p.onChange(func() error { changes <- struct{}{}; return nil })
	if err := p.Run(t.Context(), program{name: "worker", path: "/bin/sh", args: []string{"-c", "echo last words; exec sleep 60"}}); err != nil {
		t.Fatal(err)
	}
	pid := p.Pids()["worker"]
	for strings.TrimSpace(tailFile(p.LogFile("worker"), 1)) == "" {
		time.Sleep(10 * time.Millisecond) // until the shell has written
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := (<-p.failed).Error()
	for _, want := range []string{fmt.Sprintf("worker (pid %d) ended unexpectedly: signal: killed", pid), "last words"} {
		if !strings.Contains(got, want) {
			t.Errorf("the error is %q, want %q in it", got, want)
		}
	}
	if got, want := p.states()["worker"], (ProgramState{Pid: pid, Ended: "ended: signal: killed"}); got != want {
		t.Errorf("the state is %+v, want %+v", got, want)
	}
	if len(changes) != 2 {
		t.Errorf("%d changes were reported, want 2: one start, one end", len(changes))
	}
}

// A program that End has ended is no failure, and its state shows its new process after a
// restart.
func TestRestartedProgramIsListedWithItsNewPid(t *testing.T) {
	p := newProcesses(t.TempDir())
	if err := p.Run(t.Context(), program{name: "worker", path: "/bin/sleep", args: []string{"60"}}); err != nil {
		t.Fatal(err)
	}
	before := p.Pids()["worker"]
	if err := p.End("worker", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := p.states()["worker"]; got.Pid != before || got.Ended != "ended: signal: killed" {
		t.Errorf("after End the state is %+v", got)
	}
	if err := p.Restart(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	if got := p.states()["worker"]; got.Pid == before || got.Ended != "" {
		t.Errorf("after Restart the state is %+v, before it had pid %d", got, before)
	}
	if err := p.endAll(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-p.failed:
		t.Error(err)
	default:
	}
}

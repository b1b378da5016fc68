package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// readyTimeout is the time that a program has to become ready.
const readyTimeout = 90 * time.Second

// program describes a process of the fleet.
type program struct {
	name  string // unique; also the name of the log
	path  string
	args  []string
	env   []string
	ready func(context.Context) error // returns nil once ready; nil: ready at once
}

// Processes runs programs. Each program has its own log and working directory.
type Processes struct {
	dir   string // contains logs/ and work/
	start chan func()

	mu      sync.Mutex
	started map[string]*process // by name; the latest process of each program
	order   []string            // names in the order of their first start
	// failed receives an error when the first program ends unexpectedly.
	failed chan error
	// changed is called after a program started or ended; nil = no call.
	changed func() error
}

type process struct {
	program
	cmd      *exec.Cmd
	done     chan struct{} // closed once the process has ended
	err      error         // why it ended; set before done is closed
	expected bool          // End was called
}

func newProcesses(dir string) *Processes {
	p := &Processes{dir: dir, start: make(chan func()), started: map[string]*process{}, failed: make(chan error, 1)}
	go func() {
		// The kernel sends Pdeathsig when the thread ends that forked the child.
		// This thread never ends, so it forks all children.
		runtime.LockOSThread()
		for f := range p.start {
			f()
		}
	}()
	return p
}

// Run starts a program and waits until it is ready. If a program of the same name
// ran before, Run appends to its log.
func (p *Processes) Run(ctx context.Context, prog program) error {
	proc := &process{program: prog, done: make(chan struct{})}
	if err := p.fork(proc); err != nil {
		return err
	}
	if err := p.reportChange(); err != nil {
		return err
	}
	if prog.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := awaitReady(ctx, proc); err != nil {
		return fmt.Errorf("%s: %w; the last lines of %s:\n%s", prog.name, err, p.LogFile(prog.name), tailFile(p.LogFile(prog.name), 8))
	}
	return nil
}

func awaitReady(ctx context.Context, proc *process) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if last = proc.ready(ctx); last == nil {
			return nil
		}
		select {
		case <-proc.done:
			return fmt.Errorf("ended before it was ready: %w", proc.err)
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", last)
		case <-tick.C:
		}
	}
}

func (p *Processes) fork(proc *process) error {
	work := filepath.Join(p.dir, "work", proc.name)
	if err := errors.Join(os.MkdirAll(work, 0o700), os.MkdirAll(filepath.Dir(p.LogFile(proc.name)), 0o755)); err != nil {
		return err
	}
	log, err := os.OpenFile(p.LogFile(proc.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("log of %s: %w", proc.name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(proc.path, proc.args...)
	cmd.Env = append(os.Environ(), proc.env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, log, log
	// With its own process group the child does not receive Ctrl-C: Stop ends the
	// programs in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	proc.cmd = cmd

	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.started[proc.name]; old != nil && !old.hasEnded() {
		return fmt.Errorf("%s is already running", proc.name)
	}
	started := make(chan error)
	p.start <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", proc.name, err)
	}
	if p.started[proc.name] == nil {
		p.order = append(p.order, proc.name)
	}
	p.started[proc.name] = proc
	go p.wait(proc)
	return nil
}

// onChange sets the function that is called after each start and end of a program.
func (p *Processes) onChange(changed func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = changed
}

func (p *Processes) reportChange() error {
	p.mu.Lock()
	changed := p.changed
	p.mu.Unlock()
	if changed == nil {
		return nil
	}
	return changed()
}

func (p *Processes) wait(proc *process) {
	err := proc.cmd.Wait()
	p.mu.Lock()
	proc.err = err
	if err == nil {
		proc.err = errors.New("exit status 0")
	}
	close(proc.done)
	expected := proc.expected
	p.mu.Unlock()
	if err := p.reportChange(); err != nil {
		p.report(err)
	}
	if !expected {
		p.report(fmt.Errorf("%s (pid %d) ended unexpectedly: %w; the last lines of %s:\n%s", proc.name, proc.cmd.Process.Pid, proc.err,
			p.LogFile(proc.name), tailFile(p.LogFile(proc.name), 8)))
	}
}

// report sends an error to failed, unless an earlier one is there.
func (p *Processes) report(err error) {
	select {
	case p.failed <- err:
	default:
	}
}

func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// End sends a signal to a program and waits until it has ended. After ten seconds
// it sends SIGKILL. A program that has already ended is no error.
func (p *Processes) End(name string, sig syscall.Signal) error {
	p.mu.Lock()
	proc := p.started[name]
	if proc == nil {
		p.mu.Unlock()
		return fmt.Errorf("no program %q was started, only %s", name, strings.Join(p.Names(), ", "))
	}
	proc.expected = true
	p.mu.Unlock()
	if proc.hasEnded() {
		return nil
	}
	if err := proc.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", name, err)
	}
	select {
	case <-proc.done:
	case <-time.After(10 * time.Second):
		if err := proc.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill %s: %w", name, err)
		}
		<-proc.done
	}
	return nil
}

// Signal sends a signal, such as SIGSTOP, to a running program.
func (p *Processes) Signal(name string, sig syscall.Signal) error {
	p.mu.Lock()
	proc := p.started[name]
	p.mu.Unlock()
	if proc == nil || proc.hasEnded() {
		return fmt.Errorf("no program %q is running", name)
	}
	return proc.cmd.Process.Signal(sig)
}

// Restart runs a program again after End.
func (p *Processes) Restart(ctx context.Context, name string) error {
	p.mu.Lock()
	proc := p.started[name]
	p.mu.Unlock()
	if proc == nil {
		return fmt.Errorf("no program %q was started", name)
	}
	return p.Run(ctx, proc.program)
}

// Names returns the programs' names in the order of their start.
func (p *Processes) Names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.order...)
}

// Pids returns the process IDs of the running programs by name.
func (p *Processes) Pids() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	pids := map[string]int{}
	for name, proc := range p.started {
		if !proc.hasEnded() {
			pids[name] = proc.cmd.Process.Pid
		}
	}
	return pids
}

// states returns the state of each program by name.
func (p *Processes) states() map[string]ProgramState {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := map[string]ProgramState{}
	for name, proc := range p.started {
		state := ProgramState{Pid: proc.cmd.Process.Pid}
		if proc.hasEnded() {
			state.Ended = "ended: " + proc.err.Error()
		}
		states[name] = state
	}
	return states
}

// endAll kills all programs.
func (p *Processes) endAll() error {
	names := p.Names()
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { errs[i] = p.End(name, syscall.SIGKILL) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// LogFile returns the path of a program's log.
func (p *Processes) LogFile(name string) string { return filepath.Join(p.dir, "logs", name+".log") }

func tailFile(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "  " + strings.Join(all, "\n  ")
}

// httpReady returns a readiness check that sends a GET request to url. It succeeds
// if the status is below 400.
func httpReady(url string, c *http.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode >= 400 {
			return fmt.Errorf("GET %s: %s", url, resp.Status)
		}
		return nil
	}
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// program is one component to run.
type program struct {
	name  string // unique, also the log's name
	path  string
	args  []string
	env   []string
	ready func(context.Context) error // nil = ready once started
}

// Processes runs programs, each with a log of its own, and ends them all.
type Processes struct {
	dir   string // holds logs/ and work/
	start chan func()

	mu      sync.Mutex
	running map[string]*process
	order   []string
	// failed carries the first program that ended although nobody asked it to.
	failed chan error
}

type process struct {
	program
	cmd      *exec.Cmd
	done     chan struct{}
	err      error
	expected bool
}

func newProcesses(dir string) *Processes {
	p := &Processes{dir: dir, start: make(chan func()), running: map[string]*process{}, failed: make(chan error, 1)}
	go func() {
		// A child gets Pdeathsig when the thread that forked it ends, so one
		// thread that never ends forks them all.
		runtime.LockOSThread()
		for f := range p.start {
			f()
		}
	}()
	return p
}

// Run starts a program and waits until it is ready. One of the same name that
// has ended is started anew; its log goes on.
func (p *Processes) Run(ctx context.Context, prog program) error {
	proc := &process{program: prog, done: make(chan struct{})}
	if err := p.fork(proc); err != nil {
		return err
	}
	if prog.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	if err := p.await(ctx, proc); err != nil {
		return fmt.Errorf("%s: %w; the last lines of %s:\n%s", prog.name, err, p.LogFile(prog.name), tailFile(p.LogFile(prog.name), 8))
	}
	return nil
}

func (p *Processes) await(ctx context.Context, proc *process) error {
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
	// A group of its own keeps Ctrl-C from ending the fleet before its keeper does it in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	proc.cmd = cmd

	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.running[proc.name]; old != nil && !old.ended() {
		return fmt.Errorf("%s runs already", proc.name)
	}
	started := make(chan error)
	p.start <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", proc.name, err)
	}
	if p.running[proc.name] == nil {
		p.order = append(p.order, proc.name)
	}
	p.running[proc.name] = proc
	go p.wait(proc)
	return nil
}

func (p *Processes) wait(proc *process) {
	err := proc.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	proc.err = err
	if err == nil {
		proc.err = errors.New("exit status 0")
	}
	close(proc.done)
	if !proc.expected {
		select {
		case p.failed <- fmt.Errorf("%s ended by itself (%w); see %s", proc.name, proc.err, p.LogFile(proc.name)):
		default:
		}
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// End sends a signal to a program and waits until it is gone; SIGTERM is
// followed by SIGKILL after ten seconds. A program that doesn't run is fine.
func (p *Processes) End(name string, sig syscall.Signal) error {
	p.mu.Lock()
	proc := p.running[name]
	if proc == nil {
		p.mu.Unlock()
		return fmt.Errorf("no program named %q was started; there are: %s", name, strings.Join(p.order, ", "))
	}
	proc.expected = true
	p.mu.Unlock()
	if proc.ended() {
		return nil
	}
	if err := proc.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", name, err)
	}
	select {
	case <-proc.done:
	case <-time.After(10 * time.Second):
		_ = proc.cmd.Process.Kill()
		<-proc.done
	}
	return nil
}

// Signal a program that runs, such as SIGSTOP and SIGCONT.
func (p *Processes) Signal(name string, sig syscall.Signal) error {
	p.mu.Lock()
	proc := p.running[name]
	p.mu.Unlock()
	if proc == nil || proc.ended() {
		return fmt.Errorf("no program named %q runs", name)
	}
	return proc.cmd.Process.Signal(sig)
}

// Restart runs a program again that End ended.
func (p *Processes) Restart(ctx context.Context, name string) error {
	p.mu.Lock()
	proc := p.running[name]
	p.mu.Unlock()
	if proc == nil {
		return fmt.Errorf("no program named %q was started", name)
	}
	return p.Run(ctx, proc.program)
}

// Names of the programs in the order of their start.
func (p *Processes) Names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.order...)
}

// Pids of the programs that run.
func (p *Processes) Pids() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	pids := map[string]int{}
	for name, proc := range p.running {
		if !proc.ended() {
			pids[name] = proc.cmd.Process.Pid
		}
	}
	return pids
}

// stop ends all programs, the last started first, a dozen at a time.
func (p *Processes) stop() {
	names := p.Names()
	var wg sync.WaitGroup
	for i := len(names) - 1; i >= 0; i-- {
		wg.Add(1)
		go func() { defer wg.Done(); _ = p.End(names[i], syscall.SIGKILL) }()
	}
	wg.Wait()
}

// LogFile of a program.
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

// answers is ready once a GET of url does not fail with 400 or above.
func answers(url string, c *http.Client) func(context.Context) error {
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
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}

// listens is ready once a TCP connection to addr is accepted.
func listens(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ownTests is the name of the first stage.
const ownTests = "own tests"

// stage is a command that fails if it notices a mutant.
type stage struct {
	name string
	args []string
	// isTest is true for a call of go test -json.
	isTest bool
}

// runner runs stages against mutants. Its folder contains the overlay and go's temporary files.
type runner struct {
	options options
	folder  string
	goFlags string
}

func newRunner(ctx context.Context, o options) (*runner, error) {
	flags, err := output(exec.CommandContext(ctx, "go", "env", "GOFLAGS"))
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	r := &runner{options: o, folder: folder}
	r.goFlags = strings.TrimSpace(string(flags)) + " -overlay=" + r.overlay()
	return r, nil
}

func (r *runner) close() { _ = os.RemoveAll(r.folder) }

func (r *runner) overlay() string { return filepath.Join(r.folder, "overlay.json") }

// stages returns the stages of a package's mutants, in their order.
func (r *runner) stages(s *source) []stage {
	stages := []stage{r.testStage(ownTests, s.path)}
	for _, patterns := range r.options.tests {
		stages = append(stages, r.testStage(patterns, strings.Fields(patterns)...))
	}
	for _, command := range r.options.commands {
		stages = append(stages, stage{name: command, args: []string{"sh", "-c", command}})
	}
	return stages
}

// testStage calls go test. vet is off because it finds some mutants and would hide that no test does.
// Go's test cache stays on: packages that do not depend on the mutant are not tested again.
func (r *runner) testStage(name string, patterns ...string) stage {
	return stage{name, append([]string{"go", "test", "-overlay=" + r.overlay(), "-vet=off", "-failfast", "-json"}, patterns...), true}
}

// writeOverlay replaces files for go: path by content.
func (r *runner) writeOverlay(path string, content []byte) error {
	replace := map[string]string{}
	if path != "" {
		replace[path] = filepath.Join(r.folder, "mutant.go")
		if err := os.WriteFile(replace[path], content, 0o600); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(r.overlay(), overlay, 0o600)
}

// checkUnchanged runs all stages without a mutant. They must succeed.
func (r *runner) checkUnchanged(ctx context.Context, sources []*source, progress io.Writer) error {
	if err := r.writeOverlay("", nil); err != nil {
		return err
	}
	done := map[string]bool{}
	for _, s := range sources {
		for _, one := range r.stages(s) {
			key := strings.Join(one.args, " ")
			if done[key] {
				continue
			}
			done[key] = true
			started := time.Now()
			tested, err := r.run(ctx, one)
			if err != nil {
				return err
			}
			if tested.outcome != survived {
				return fmt.Errorf("%s: %s without a mutant: %s", s.name(), one.name, tested.verdict())
			}
			fmt.Fprintf(progress, "%s: %s without a mutant: %.1f s\n", s.name(), one.name, time.Since(started).Seconds())
		}
	}
	return nil
}

// test runs the stages against a mutant until one notices it, at most for the timeout.
func (r *runner) test(ctx context.Context, m mutant) (result, error) {
	if err := r.writeOverlay(m.file.path, m.content()); err != nil {
		return result{}, err
	}
	limited, cancel := context.WithTimeout(ctx, r.options.timeout)
	defer cancel()
	for _, one := range r.stages(m.source) {
		tested, err := r.run(limited, one)
		if ctx.Err() != nil {
			return result{}, ctx.Err()
		}
		if err != nil || tested.outcome != survived {
			return tested, err
		}
	}
	return result{outcome: survived}, nil
}

// run runs a stage. If ctx ends, it ends the stage's processes and the outcome is timedOut.
func (r *runner) run(ctx context.Context, s stage) (result, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, s.args[0], s.args[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "GOTMPDIR="+r.folder)
	if !s.isTest {
		cmd.Env = append(cmd.Env, "GOFLAGS="+r.goFlags)
	}
	// Tests run in processes of their own. An interrupt lets go remove its temporary files first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	tested := result{outcome: survived, stage: s.name, by: s.name}
	var events testEvents
	if s.isTest {
		events = readEvents(&stdout)
		tested.by = events.failed
	}
	var failure *exec.ExitError
	switch {
	case ctx.Err() != nil:
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		tested.outcome, tested.by = timedOut, cmp.Or(events.last, s.name)
	case err == nil:
	case !errors.As(err, &failure) || s.isTest && events.failed == "":
		return tested, fmt.Errorf("%s: %w\n%s", strings.Join(s.args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	case events.notBuilt:
		tested.outcome = notCompiled
	default:
		tested.outcome = killed
	}
	return tested, nil
}

// testEvents are the events of go test -json.
type testEvents struct {
	// failed is the first test that failed, as PACKAGE/TEST, or the package if no test failed. last is
	// the test of the last event.
	failed, last string
	// notBuilt is true if a package or its tests did not compile.
	notBuilt bool
}

func readEvents(stdout io.Reader) testEvents {
	var found testEvents
	for d := json.NewDecoder(stdout); ; {
		var e struct{ Action, Package, Test, FailedBuild string }
		if err := d.Decode(&e); err != nil {
			return found // The stage was interrupted while it wrote an event, or has ended.
		}
		name := strings.TrimSuffix(e.Package+"/"+e.Test, "/")
		found.notBuilt = found.notBuilt || e.FailedBuild != ""
		if e.Test != "" {
			found.last = name
		}
		if e.Action == "fail" && found.failed == "" {
			found.failed = name
		}
	}
}

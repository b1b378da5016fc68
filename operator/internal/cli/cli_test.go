package cli

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

var update = flag.Bool("update", false, "update the golden files of the scripts")

// now is the current time in all scripts that do not set NOW.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// scriptTime returns the current time of a script.
func scriptTime() time.Time {
	text := os.Getenv("NOW")
	if text == "" {
		return now
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func TestMain(m *testing.M) {
	plugin := func() {
		streams := genericclioptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
		os.Exit(run(context.Background(), Args(os.Args), streams, scriptTime))
	}
	testscript.Main(m, map[string]func(){"kubectl-plimsoll": plugin, "kubectl_complete-plimsoll": plugin})
}

// TestScripts runs the plugin as a user does, against fake servers: a hub with the objects
// in the folder hub of the script, an operator and a Prometheus.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup:               startServers,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": runExits, "expand": expandFile, "patch": patchHub, "serves": runServer},
	})
}

// runExits implements the script command "exits CODE COMMAND...": COMMAND must exit with
// CODE.
func runExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// runServer implements the script command "serves COMMAND...": COMMAND prints an address, where it serves a page until it
// is killed. The output is the page.
func runServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: serves COMMAND...")
	}
	path, err := exec.LookPath(args[0])
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stderr = append(os.Environ(), "KUBECONFIG="+ts.Getenv("KUBECONFIG"), "HOME="+ts.Getenv("HOME")), ts.Getenv("WORK"), ts.Stderr()
	printed, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // the command serves until then
	address, err := bufio.NewReader(printed).ReadString('\n')
	ts.Check(err)
	page, status, err := get(newBrowser(), strings.TrimSpace(address), nil)
	ts.Check(err)
	if status != http.StatusOK {
		ts.Fatalf("%s has status %d: %s", address, status, page)
	}
	_, err = fmt.Fprint(ts.Stdout(), page)
	ts.Check(err)
}

// expandFile implements the script command "expand FILE...": it replaces the environment
// variables in the files.
func expandFile(ts *testscript.TestScript, _ bool, args []string) {
	for _, file := range args {
		path := ts.MkAbs(file)
		ts.Check(os.WriteFile(path, []byte(os.Expand(ts.ReadFile(file), ts.Getenv)), 0o600))
	}
}

// patchHub implements the script command "patch FILE": it merges the objects of the file into
// those of the hub.
func patchHub(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: patch FILE")
	}
	ts.Check(ts.Value(fakeHubKey{}).(*fakeHub).patch([]byte(ts.ReadFile(args[0]))))
}

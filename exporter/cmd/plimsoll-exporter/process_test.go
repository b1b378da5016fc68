package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain runs the exporter itself in the processes that tests start.
func TestMain(m *testing.M) {
	if os.Getenv("PLIMSOLL_RUN_EXPORTER") == "yes" {
		main()
		return
	}
	os.Exit(m.Run())
}

// patience with what a process does not do.
const patience = 30 * time.Second

// process is an exporter that a test started.
type process struct {
	*exec.Cmd
	t    testing.TB
	base string // URL

	mu     sync.Mutex
	log    bytes.Buffer
	logged *sync.Cond
}

// command of the exporter, with a kubelet and a library that are not there unless
// the arguments name others.
func command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	none := t.TempDir()
	for _, usual := range []string{"--node-name=node-1", "--pod-resources-kubelet-socket=" + none + "/kubelet.sock", "--nvml-library=" + none + "/libnvidia-ml.so.1",
		"--tpu-sysfs-root=" + none, "--collect-interval=100", "--web.listen-address=127.0.0.1:0"} {
		name, _, _ := strings.Cut(usual, "=")
		if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, name+"=") }) {
			args = append(args, usual)
		}
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "PLIMSOLL_RUN_EXPORTER=yes")
	return cmd
}

var listening = regexp.MustCompile(`address"?[=:]"?(127\.0\.0\.1:\d+|\[::\]:\d+)`)

// start the command and wait until it listens.
func start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, t: t}
	p.logged = sync.NewCond(&p.mu)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.follow(stderr)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // with the error that a test looks at
	})
	if address := listening.FindStringSubmatch(p.says(listening)); address != nil {
		p.base = "http://" + strings.Replace(address[1], "[::]", "127.0.0.1", 1)
	}
	return p
}

func (p *process) follow(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.mu.Lock()
		p.log.WriteString(lines.Text() + "\n")
		p.logged.Broadcast()
		p.mu.Unlock()
	}
	p.mu.Lock()
	p.log.WriteString("(end)\n")
	p.logged.Broadcast()
	p.mu.Unlock()
}

// says waits until the log has what is looked for, and returns it.
func (p *process) says(want *regexp.Regexp) string {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	late := time.AfterFunc(patience, func() { _ = p.Process.Kill() })
	defer late.Stop()
	for !want.Match(p.log.Bytes()) {
		if bytes.HasSuffix(p.log.Bytes(), []byte("(end)\n")) {
			p.t.Fatalf("it ended and did not say %s:\n%s", want, &p.log)
		}
		p.logged.Wait()
	}
	return string(want.Find(p.log.Bytes()))
}

// get a path: the status and what it says.
func (p *process) get(path string) (int, string) {
	p.t.Helper()
	response, err := http.Get(p.base + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// until a path answers with a status and a text.
func (p *process) until(path string, status int, text string) string {
	p.t.Helper()
	for end := time.Now().Add(patience); ; {
		got, body := p.get(path)
		if got == status && strings.Contains(body, text) {
			return body
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s does not come to answer %d with %s, but %d:\n%s", path, status, text, got, body)
		}
	}
}

// driver is a fake of NVIDIA's library and the file of words that rules it; see
// fake.c for the words' places.
type driver struct {
	t       testing.TB
	library string
	control string
}

const (
	driverCount, driverInitResult, driverGone, driverVersionWord = 0, 1, 2, 13
	driverStalled, driverStallCount                              = 5, 11
	driverDevices, driverDeviceWords                             = 64, 64
)

func newDriver(t testing.TB, devices int, flags ...string) *driver {
	t.Helper()
	folder := t.TempDir()
	d := &driver{t, filepath.Join(folder, "libnvidia-ml.so.1"), filepath.Join(folder, "control")}
	flags = append(flags, "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", "-o", d.library, "../../internal/nvml/testdata/fake/fake.c")
	out, err := exec.Command("gcc", flags...).CombinedOutput()
	if err != nil {
		t.Fatalf("compile the fake of NVIDIA's library: %v\n%s", err, out)
	}
	if err := os.WriteFile(d.control, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	d.set(driverVersionWord, 580)
	for i := range devices {
		at := driverDevices + i*driverDeviceWords
		d.set(at+2, uint64(0xa0+i)) // serial
		for word := 5; word < 24; word++ {
			d.set(at+word, uint64(1+word))
		}
		d.set(at+16, 81559<<20) // memory
		d.set(at+17, 1000<<20)  // used
	}
	d.set(driverCount, uint64(devices))
	return d
}

func (d *driver) set(word int, v uint64) {
	d.t.Helper()
	file, err := os.OpenFile(d.control, os.O_RDWR, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, v), int64(8*word))
	if err := errors.Join(err, file.Close()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *driver) get(word int) uint64 {
	d.t.Helper()
	words, err := os.ReadFile(d.control)
	if err != nil {
		d.t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(words[8*word:])
}

// command of an exporter that loads it.
func (d *driver) command(args ...string) *exec.Cmd {
	d.t.Helper()
	cmd := command(d.t, append([]string{"--source=nvml", "--nvml-library=" + d.library}, args...)...)
	cmd.Env = append(cmd.Env, "PLIMSOLL_FAKE_CONTROL="+d.control)
	return cmd
}

// nodes that lack something, and what is said of it.
func nodes(t *testing.T) []lacking {
	t.Helper()
	refused := newDriver(t, 8)
	refused.set(driverInitResult, 4)
	return []lacking{
		{"no library", func(args ...string) *exec.Cmd {
			return command(t, append([]string{"--source=nvml", "-k=false"}, args...)...)
		},
			"libnvidia-ml.so.1): library not found; is the driver installed", "missing  NVIDIA devices: load", `plimsoll_exporter_source_up{node="node-1",source="nvml"} 0`},
		{"no permission", func(args ...string) *exec.Cmd { return refused.command(append([]string{"-k=false"}, args...)...) },
			"Insufficient Permissions; may this user", "missing  NVIDIA devices: load NVIDIA's driver library (libnvidia-ml.so.1): Insufficient Permissions", `plimsoll_exporter_source_up{node="node-1",source="nvml"} 0`},
		{"no kubelet", func(args ...string) *exec.Cmd { return command(t, append([]string{"--source=sim"}, args...)...) },
			"ask the kubelet", "missing  who holds devices: the kubelet's socket", `plimsoll_exporter_unmapped_devices{node="node-1",reason="kubelet does not answer"} 8`},
	}
}

type lacking struct {
	what            string
	command         func(args ...string) *exec.Cmd
	log, doctor, up string
}

func TestStrictEndsWhereSomethingIsMissing(t *testing.T) {
	for _, n := range nodes(t) {
		out, err := n.command("--strict").CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), n.log) || !strings.Contains(string(out), "(--strict)") {
			t.Errorf("%s: %v\n%s", n.what, err, out)
		}
	}
}

func TestWithoutStrictItServesAndSaysWhatIsMissing(t *testing.T) {
	for _, n := range nodes(t) {
		p := start(t, n.command())
		p.until("/metrics", http.StatusOK, n.up)
		out, err := n.command("doctor").CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), n.doctor) {
			t.Errorf("%s: %v\n%s", n.what, err, out)
		}
	}
}

func TestHealthFollowsTheDriver(t *testing.T) {
	d := newDriver(t, 2)
	d.set(driverInitResult, 9) // not loaded
	p := start(t, d.command("-k=false", "--collect-interval=100"))
	p.until("/health", http.StatusServiceUnavailable, "no collection has succeeded yet")
	d.set(driverInitResult, 0)
	p.until("/health", http.StatusOK, "OK")
}

// A driver that holds its lock keeps nobody from ending the process.
func TestItEndsWhileTheDriverStalls(t *testing.T) {
	d := newDriver(t, 2)
	cmd := d.command("-k=false", "--collect-interval=100")
	silent, hold, err := os.Pipe() // what the stalled call waits for
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(silent.Close(), hold.Close()) })
	cmd.Stdin = silent
	p := start(t, cmd)
	p.until("/health", http.StatusOK, "OK")
	d.set(driverStallCount, 1)
	for end := time.Now().Add(patience); d.get(driverStalled) == 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("no call stalls")
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.says(regexp.MustCompile("ending all the same"))
	p.says(regexp.MustCompile(`\(end\)`))
}

func TestLogInJSONParses(t *testing.T) {
	p := start(t, command(t, "--source=sim", "--log-format=json", "--cpu-devices=f", "--debug"))
	p.says(regexp.MustCompile("--cpu-devices"))
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.log.String()) {
		var entry struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" || entry.Level == "" || entry.Msg == "" {
			t.Errorf("%v: %s", err, line)
		}
	}
}

func TestProfilesAreServedWhereAsked(t *testing.T) {
	without := start(t, command(t, "--source=sim"))
	with := start(t, command(t, "--source=sim", "--enable-pprof"))
	for path, says := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/cmdline": "--enable-pprof", "/debug/pprof/symbol": "num_symbols",
		"/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/heap?debug=1": "heap profile",
	} {
		if status, body := with.get(path); status != http.StatusOK || !strings.Contains(body, says) {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
		if status, _ := without.get(path); status != http.StatusNotFound {
			t.Errorf("%s without --enable-pprof: %d", path, status)
		}
	}
}

func TestHangupServesTheOldUntilTheNewIsThere(t *testing.T) {
	counters := filepath.Join(t.TempDir(), "counters.csv")
	write := func(text string) {
		if err := os.WriteFile(counters, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("DCGM_FI_DEV_GPU_UTIL, gauge, Busy.\n")
	p := start(t, command(t, "--source=sim", "--collectors="+counters, "--collect-interval=500"))
	p.until("/metrics", http.StatusOK, "DCGM_FI_DEV_GPU_UTIL{")
	write("DCGM_FI_DEV_POWER_USAGE, gauge, Watts.\n")
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for {
		status, body := p.get("/metrics")
		old, renewed := strings.Contains(body, "DCGM_FI_DEV_GPU_UTIL{"), strings.Contains(body, "DCGM_FI_DEV_POWER_USAGE{")
		if status != http.StatusOK || old == renewed {
			t.Fatalf("%d; the old metric is there: %t, the new: %t", status, old, renewed)
		}
		if renewed {
			break
		}
	}
	write("DCGM_FI_DEV_POWER_USAGE, gauze, Watts.\n")
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.says(regexp.MustCompile(`not reloaded; what was exposed stays.*line 1`))
	if _, body := p.get("/metrics"); !strings.Contains(body, "DCGM_FI_DEV_POWER_USAGE{") {
		t.Error("a wrong file cost what was exposed")
	}
}

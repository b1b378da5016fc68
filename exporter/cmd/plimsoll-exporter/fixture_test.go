package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	app := kingpin.New("plimsoll-exporter", "").Terminate(nil).UsageWriter(io.Discard).ErrorWriter(io.Discard)
	o := newOptions(app)
	_, err := app.Parse(normalizeArgs(app, args))
	return o, err
}

// hostProcfs returns a procfs that shows the host's processes.
func hostProcfs(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "2"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "2", "comm"), []byte("kthreadd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// scrapeSeries scrapes the exporter and returns each series in the syntax of promqltest,
// with three samples of value 1.
func (p *process) scrapeSeries(accept string) []string {
	p.t.Helper()
	request, err := http.NewRequest(http.MethodGet, p.base+"/metrics", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	parser, err := textparse.New(text, response.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	var out []string
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if entry == textparse.EntrySeries {
			var l labels.Labels
			parser.Labels(&l)
			out = append(out, "\t"+labels.NewBuilder(l).Set("instance", "node-1:9400").Labels().String()+" 1+0x3")
		}
	}
}

// TestMain runs the exporter itself in the processes that tests start.
func TestMain(m *testing.M) {
	if os.Getenv("PLIMSOLL_RUN_EXPORTER") == "yes" {
		main()
		return
	}
	os.Exit(m.Run())
}

// waitLimit is the time for which tests wait for a process.
const waitLimit = 30 * time.Second

// process is an exporter started by a test.
type process struct {
	*exec.Cmd
	t    testing.TB
	base string // URL

	mu     sync.Mutex
	log    bytes.Buffer
	logged *sync.Cond
}

// command returns a command of the exporter. The kubelet and the driver do not exist unless
// the arguments name others.
func command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	none := t.TempDir()
	for _, arg := range []string{"--node-name=node-1", "--pod-resources-kubelet-socket=" + none + "/kubelet.sock", "--nvml-library=" + none + "/libnvidia-ml.so.1",
		"--tpu-sysfs-root=" + none, "--amd-sysfs-root=" + none, "--collect-interval=100", "--web.listen-address=127.0.0.1:0"} {
		name, _, _ := strings.Cut(arg, "=")
		if !slices.ContainsFunc(args, func(given string) bool { return strings.HasPrefix(given, name+"=") }) {
			args = append(args, arg)
		}
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "PLIMSOLL_RUN_EXPORTER=yes")
	return cmd
}

// buildExporter builds the shipped program and returns its path. The resources of the test
// program are not those of the exporter, least of all with the race detector.
func buildExporter(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "plimsoll-exporter")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

var listening = regexp.MustCompile(`address"?[=:]"?(127\.0\.0\.1:\d+|\[::\]:\d+)`)

// start starts the command and waits until the exporter listens.
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
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails if the process has ended
		_ = cmd.Wait()                          // the test checks the exit status
	})
	if address := listening.FindStringSubmatch(p.waitForLog(listening)); address != nil {
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

// waitForLog waits until the log matches, and returns the match.
func (p *process) waitForLog(want *regexp.Regexp) string {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	timer := time.AfterFunc(waitLimit, func() { _ = p.Process.Kill() })
	defer timer.Stop()
	for !want.Match(p.log.Bytes()) {
		if bytes.HasSuffix(p.log.Bytes(), []byte("(end)\n")) {
			p.t.Fatalf("the process ended without logging %s:\n%s", want, &p.log)
		}
		p.logged.Wait()
	}
	return string(want.Find(p.log.Bytes()))
}

// get requests a path and returns the status and the body.
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

// waitFor requests a path until the response has the status and contains the text.
func (p *process) waitFor(path string, status int, text string) string {
	p.t.Helper()
	for end := time.Now().Add(waitLimit); ; {
		got, body := p.get(path)
		if got == status && strings.Contains(body, text) {
			return body
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s does not return %d with %s, but %d:\n%s", path, status, text, got, body)
		}
	}
}

// driver is a fake of NVIDIA's library and the file of 64-bit words that controls it. See
// fake.c for the meaning of each word.
type driver struct {
	t       testing.TB
	library string
	control string
}

const (
	driverCount, driverInitResult, driverUnloaded, driverVersionWord = 0, 1, 2, 13
	driverStalled, driverStallCount                                  = 5, 11
	driverDevices, driverDeviceWords                                 = 64, 64
)

func newDriver(t testing.TB, devices int, flags ...string) *driver {
	t.Helper()
	folder := t.TempDir()
	d := &driver{t, filepath.Join(folder, "libnvidia-ml.so.1"), filepath.Join(folder, "control")}
	flags = append(flags, "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", "-o", d.library, "../../internal/nvml/testdata/fake/fake.c")
	out, err := exec.Command("gcc", flags...).CombinedOutput()
	if err != nil {
		t.Fatalf("compile the fake NVIDIA library: %v\n%s", err, out)
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

// command returns a command of an exporter that loads the fake library.
func (d *driver) command(args ...string) *exec.Cmd {
	d.t.Helper()
	cmd := command(d.t, append([]string{"--source=nvml", "--nvml-library=" + d.library}, args...)...)
	cmd.Env = append(cmd.Env, "PLIMSOLL_FAKE_CONTROL="+d.control)
	return cmd
}

// addTPU adds a v5e chip to a fake sysfs. Without a driver the chip has no device node.
func addTPU(t *testing.T, sysfs, address string, hasDriver bool) {
	t.Helper()
	dir := filepath.Join(sysfs, "bus/pci/devices", address)
	err := os.MkdirAll(dir, 0o755)
	for name, value := range map[string]string{"device": "0x0063", "subsystem_device": "0x0000", "vendor": "0x1ae0"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600))
	}
	if hasDriver {
		err = errors.Join(err, os.Symlink("../../../kernel/iommu_groups/0", filepath.Join(dir, "iommu_group")))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// parseBareNode returns the options of a node without NVIDIA's library, and its empty sysfs.
func parseBareNode(t *testing.T, more ...string) (o *options, sysfs string) {
	t.Helper()
	sysfs = t.TempDir()
	o, err := parse(t, append([]string{"--node-name=n", "-k=false", "--collect-interval=100", "--nvml-library=" + filepath.Join(sysfs, "none.so"),
		"--tpu-sysfs-root=" + sysfs, "--tpu-procfs-root=" + filepath.Join(sysfs, "proc"), "--tpu-runtime-metrics=127.0.0.1:1", "--amd-sysfs-root=" + sysfs}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return o, sysfs
}

// writeCertificate writes a certificate of 127.0.0.1 and its key to a directory.
func writeCertificate(t *testing.T, directory string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(directory, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return pool
}

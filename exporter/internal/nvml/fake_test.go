package nvml

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Word offsets in the control file of the fake, as in testdata/fake/fake.c.
const (
	wordCount, wordInitResult, wordUnloaded, wordReleaseFD    = 0, 1, 2, 3
	wordCalls, wordInits, wordShutdowns, wordXIDWritten       = 6, 7, 8, 9
	wordStallCount, wordLatency, wordDriver, wordSamples      = 11, 12, 13, 14
	wordStalled, devCalls                                     = 5, 4
	wordXIDRing, wordDevices                                  = 16, 64
	deviceWords, maxDevices                                   = 64, 16
	devState, devUnsupported, devSerial, devAbsent            = 0, 1, 2, 3
	devSMClock, devMemClock, devTemperature, devPower         = 5, 6, 7, 8
	devPowerLimit, devEnergy, devReplay, devUtil, devMemUtil  = 9, 10, 11, 12, 13
	devEnc, devDec, devTotal, devUsed, devReserved            = 14, 15, 16, 17, 18
	devCorrectable, devUncorrectable, devFailed, devMemTemp   = 19, 20, 21, 22
	devSwitchless, devFailing, devFailure                     = 24, 25, 26
	devSlowdown, devMargin, devPowerSet, devEvents            = 27, 28, 29, 30
	devLicensed, devNarrow, devNVLink, devPCIe, devGPM        = 31, 32, 33, 34, 35
	devReplaced, devLinkGen, devLinkWidth, devFan             = 36, 38, 39, 40
	devPState, devFabricState, devFabricStatus, devClique     = 41, 42, 43, 44
	devFabricVersion, devComputeMode, devFieldResult          = 45, 37, 46
	devSameUUID, devFlood, wordEventSets                      = 47, 48, 15
	stateOK, stateLost, stateHung, stateReset, stateAllBroken = 0, 1, 2, 3, 4
)

// Word offsets of a device's MIG state, as in testdata/fake/mig.c.
const (
	migWords, migInstanceWords                   = 80, 11
	migSlices, migComputeSlices, migMemory       = 0, 1, 2
	migGI, migCI, migUsed, migReserved           = 3, 4, 5, 6
	migTotal, migNamedGB, migProfileID, migStart = 7, 8, 9, 10
)

// Word offsets of a device's processes, as in testdata/fake/processes.c.
const (
	processWords, processFields, processLastSeen = 24, 5, 20
	wordProcesses                                = wordDevices + maxDevices*(deviceWords+migWords)
)

const fakeSize = 8 * (wordDevices + maxDevices*(deviceWords+migWords+processWords))

// libraries are the compiled fakes, by compiler flags.
var libraries = struct {
	folder string
	paths  map[string]string
}{paths: map[string]string{}}

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "nvml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	libraries.folder = folder
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// compileFake compiles the fake library. Tests with the same flags share the result.
func compileFake(t *testing.T, flags []string) (library string) {
	t.Helper()
	key := strings.Join(flags, " ")
	if path, ok := libraries.paths[key]; ok {
		return path
	}
	folder := filepath.Join(libraries.folder, fmt.Sprint(len(libraries.paths)))
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	library = filepath.Join(folder, "libnvidia-ml.so.1")
	args := append([]string{"-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1", "-o", library}, flags...)
	if out, err := exec.Command("gcc", append(args, "testdata/fake/fake.c")...).CombinedOutput(); err != nil {
		t.Fatalf("compile the fake of NVIDIA's library: %v\n%s", err, out)
	}
	libraries.paths[key] = library
	return library
}

// fake controls the fake libnvidia-ml loaded by this process.
type fake struct {
	t       *testing.T
	words   []uint64
	release *os.File // closing it lets stalled calls return
	path    string
}

// inFake runs the calling test again in a child process, because a process can load only
// one library. It returns nil in the parent process and the fake in the child process.
func inFake(t *testing.T, flags ...string) *fake {
	t.Helper()
	if os.Getenv("PLIMSOLL_FAKE_TEST") == t.Name() {
		return openFake(t)
	}
	runInChild(t, compileFake(t, flags))
	return nil
}

// runInChild runs the calling test in a child process with a library.
func runInChild(t *testing.T, library string) {
	t.Helper()
	control := filepath.Join(t.TempDir(), "control")
	if err := os.WriteFile(control, make([]byte, fakeSize), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "PLIMSOLL_FAKE_TEST="+t.Name(), "PLIMSOLL_FAKE_CONTROL="+control, "PLIMSOLL_FAKE_LIBRARY="+library)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// openFake maps the control file and defines eight healthy devices with driver 580.
func openFake(t *testing.T) *fake {
	t.Helper()
	file, err := os.OpenFile(os.Getenv("PLIMSOLL_FAKE_CONTROL"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, fakeSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close() // the mapping remains
	f := &fake{t: t, words: unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), fakeSize/8), path: os.Getenv("PLIMSOLL_FAKE_LIBRARY")}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f.release = writer
	f.set(wordReleaseFD, uint64(reader.Fd()))
	t.Cleanup(func() { f.unstall(); runtime.KeepAlive(reader) })
	for i := range 8 {
		f.setHealthy(i)
	}
	f.set(wordCount, 8)
	f.set(wordDriver, 580)
	return f
}

// open returns a Source for the fake.
func (f *fake) open() *Source {
	s := New(f.path, slog.New(slog.DiscardHandler))
	f.t.Cleanup(func() {
		f.unstall()
		if err := s.Close(); err != nil {
			f.t.Error(err)
		}
	})
	return s
}

// setHealthy gives device i values, some of which differ from those of the other devices.
func (f *fake) setHealthy(i int) {
	n := uint64(i)
	for word, value := range map[int]uint64{
		devState: stateOK, devSerial: 0xa0 + n, devSMClock: 1980, devMemClock: 2619, devTemperature: 40 + n, devPower: 300_000 + n,
		devPowerLimit: 700_000, devEnergy: 5_000_000 + n, devReplay: n, devUtil: 10 + n, devMemUtil: 5, devEnc: 1, devDec: 2,
		devTotal: 81559 << 20, devUsed: 1000 << 20, devReserved: 559 << 20, devCorrectable: 3, devUncorrectable: 1, devFailed: 0, devMemTemp: 50 + n,
		devSlowdown: 89, devMargin: 47 - n, devPowerSet: 650_000, devEvents: 4, devLicensed: 2, devNVLink: 1000, devPCIe: 5_000_000_000, devGPM: 40,
		devLinkGen: 5, devLinkWidth: 16, devFan: 30 + n, devPState: 0, devFabricState: 3, devClique: 7, devFabricVersion: 3,
	} {
		f.setDevice(i, word, value)
	}
}

// advanceCounters increases the counters of all devices as if they worked for d.
func (f *fake) advanceCounters(d time.Duration) {
	for i := range maxDevices {
		for word, perSecond := range map[int]float64{devEnergy: 300_000, devNVLink: 1 << 20, devPCIe: 1e9} {
			f.setDevice(i, word, f.deviceWord(i, word)+uint64(perSecond*d.Seconds()))
		}
	}
}

func (f *fake) set(word int, v uint64)            { atomic.StoreUint64(&f.words[word], v) }
func (f *fake) get(word int) uint64               { return atomic.LoadUint64(&f.words[word]) }
func (f *fake) setDevice(i, word int, v uint64)   { f.set(wordDevices+i*deviceWords+word, v) }
func (f *fake) deviceWord(i, word int) uint64     { return f.get(wordDevices + i*deviceWords + word) }
func (f *fake) setUnsupported(i int, bits uint64) { f.setDevice(i, devUnsupported, bits) }

// waitForStall waits until a call stalls in the fake.
func (f *fake) waitForStall() {
	for f.get(wordStalled) == 0 {
		runtime.Gosched()
	}
}

// unstall lets all stalled calls return. Later calls of hung devices do not stall either.
func (f *fake) unstall() {
	for i := range maxDevices {
		if f.deviceWord(i, devState) == stateHung {
			f.setDevice(i, devState, stateOK)
		}
	}
	f.set(wordStallCount, 0)
	_ = f.release.Close() // fails if already closed
}

// addXID queues an XID event of a device.
func (f *fake) addXID(device int, code uint64) {
	n := f.get(wordXIDWritten)
	slot := wordXIDRing + 2*int(n%16)
	f.set(slot, uint64(device))
	f.set(slot+1, code)
	f.set(wordXIDWritten, n+1)
}

// uuid returns the UUID of device i, as in fake.c.
func (f *fake) uuid(i int) string {
	return fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", f.deviceWord(i, devSerial), i)
}

func (f *fake) uuids(devices ...int) (uuids []string) {
	for _, i := range devices {
		uuids = append(uuids, f.uuid(i))
	}
	return uuids
}

// fakeInstance is a MIG instance of the fake.
type fakeInstance struct{ slices, compute, gb, gi, ci uint64 }

// partition enables MIG mode on device i and replaces its instances. They occupy the slots
// from first on.
func (f *fake) partition(i, first int, instances ...fakeInstance) {
	base := wordDevices + maxDevices*deviceWords + i*migWords
	for word := range migWords {
		f.set(base+word, 0)
	}
	f.set(base, 1)
	for n, in := range instances {
		at := base + 1 + (first+n)*migInstanceWords
		for word, v := range map[int]uint64{migSlices: in.slices, migComputeSlices: in.compute, migMemory: in.gb*1024 - 400, migGI: in.gi, migCI: in.ci,
			migUsed: 100 * in.gi << 20, migReserved: 10 << 20, migTotal: (in.gb*1024 - 400) << 20, migNamedGB: in.gb, migProfileID: 19, migStart: uint64(n)} {
			f.set(at+word, v)
		}
	}
}

// setProcess sets process n of device i. mps is 1 for a client of MPS.
func (f *fake) setProcess(i, n int, pid, memory, sm, timestamp, mps uint64) {
	for word, v := range []uint64{pid, memory, sm, timestamp, mps} {
		f.set(wordProcesses+i*processWords+n*processFields+word, v)
	}
}

func listDevices(t *testing.T, s *Source) []device.Device {
	t.Helper()
	devices, err := s.Devices(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

func readDevice(t *testing.T, s *Source, d device.Device) device.Reading {
	t.Helper()
	r, err := s.Read(context.Background(), d)
	if err != nil {
		t.Fatalf("%s: %v", d.UUID, err)
	}
	return r
}

// readerAt returns a function that reads d at a time relative to the first reading.
func (s *Source) readerAt(t *testing.T, d device.Device) func(since time.Duration) device.Reading {
	start := time.Now()
	return func(since time.Duration) device.Reading {
		t.Helper()
		s.now = func() time.Time { return start.Add(since) }
		return readDevice(t, s, d)
	}
}

func expectValue(t *testing.T, r device.Reading, f device.Field, v float64) {
	t.Helper()
	if got, ok := r.Get(f); !ok || math.Abs(got-v) > 1e-9*v {
		t.Errorf("field %d is %g (present %t), want %g", f, got, ok, v)
	}
}

func expectAbsent(t *testing.T, r device.Reading, f device.Field) {
	t.Helper()
	if got, ok := r.Get(f); ok {
		t.Errorf("field %d is %g, want it absent", f, got)
	}
}

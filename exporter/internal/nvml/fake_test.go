package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// Words of the fake's control file; testdata/fake/fake.c has the same ones.
const (
	wordCount, wordInitResult, wordGone, wordReleaseFD        = 0, 1, 2, 3
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
	devReplaced                                               = 36
	stateOK, stateLost, stateHung, stateReset, stateAllBroken = 0, 1, 2, 3, 4
)

// fake is the control of a fake libnvidia-ml that this process may load once.
type fake struct {
	t       *testing.T
	words   []uint64
	release *os.File // closing it lets stalled calls return
	path    string
}

// inFake runs the rest of the calling test in a process of its own, since a
// library is loaded once per process; flags are for the compiler. It returns nil
// in the parent.
func inFake(t *testing.T, flags ...string) *fake {
	t.Helper()
	if os.Getenv("PLIMSOLL_FAKE_TEST") == t.Name() {
		return openFake(t)
	}
	run(t, compile(t, flags))
	return nil
}

// run the test that calls it over a library, in a process of its own.
func run(t *testing.T, library string) {
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

func openFake(t *testing.T) *fake {
	t.Helper()
	file, err := os.OpenFile(os.Getenv("PLIMSOLL_FAKE_CONTROL"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const size = fakeSize
	memory, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close() // the mapping stays
	f := &fake{t: t, words: unsafe.Slice((*uint64)(unsafe.Pointer(&memory[0])), size/8), path: os.Getenv("PLIMSOLL_FAKE_LIBRARY")}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f.release = writer
	f.set(wordReleaseFD, uint64(reader.Fd()))
	t.Cleanup(func() { f.unstall(); runtime.KeepAlive(reader) })
	for i := range 8 {
		f.healthy(i)
	}
	f.set(wordCount, 8)
	f.set(wordDriver, 580)
	return f
}

// healthy gives device i values that tell it from the others.
func (f *fake) healthy(i int) {
	n := uint64(i)
	for word, value := range map[int]uint64{
		devState: stateOK, devSerial: 0xa0 + n, devSMClock: 1980, devMemClock: 2619, devTemperature: 40 + n, devPower: 300_000 + n,
		devPowerLimit: 700_000, devEnergy: 5_000_000 + n, devReplay: n, devUtil: 10 + n, devMemUtil: 5, devEnc: 1, devDec: 2,
		devTotal: 81559 << 20, devUsed: 1000 << 20, devReserved: 559 << 20, devCorrectable: 3, devUncorrectable: 1, devFailed: 0, devMemTemp: 50 + n,
		devSlowdown: 89, devMargin: 47 - n, devPowerSet: 650_000, devEvents: 4, devLicensed: 2, devNVLink: 1000, devPCIe: 5_000_000_000, devGPM: 40,
	} {
		f.device(i, word, value)
	}
}

// work for a while: what counts goes on.
func (f *fake) work(d time.Duration) {
	for i := range maxDevices {
		for word, perSecond := range map[int]float64{devEnergy: 300_000, devNVLink: 1 << 20, devPCIe: 1e9} {
			f.device(i, word, f.deviceWord(i, word)+uint64(perSecond*d.Seconds()))
		}
	}
}

func (f *fake) set(word int, v uint64)         { atomic.StoreUint64(&f.words[word], v) }
func (f *fake) get(word int) uint64            { return atomic.LoadUint64(&f.words[word]) }
func (f *fake) device(i, word int, v uint64)   { f.set(wordDevices+i*deviceWords+word, v) }
func (f *fake) deviceWord(i, word int) uint64  { return f.get(wordDevices + i*deviceWords + word) }
func (f *fake) unsupported(i int, bits uint64) { f.device(i, devUnsupported, bits) }

// unstall lets every stalled call return, for good.
func (f *fake) unstall() {
	for i := range maxDevices {
		if f.deviceWord(i, devState) == stateHung {
			f.device(i, devState, stateOK)
		}
	}
	f.set(wordStallCount, 0)
	_ = f.release.Close() // a second time is an error that means nothing
}

func (f *fake) xid(device int, code uint64) {
	n := f.get(wordXIDWritten)
	slot := wordXIDRing + 2*int(n%16)
	f.set(slot, uint64(device))
	f.set(slot+1, code)
	f.set(wordXIDWritten, n+1)
}

// uuid as fake.c makes it.
func (f *fake) uuid(i int) string {
	return fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", f.deviceWord(i, devSerial), i)
}

// Package device is what a device can tell, whoever made it. Sources fill it,
// the collector reads it; neither knows the other.
package device

import (
	"context"
	"errors"
	"time"
)

// Device is what does not change while a device is there.
type Device struct {
	UUID      string // GPU-…
	Index     int    // as the vendor's tools number it
	Minor     string // nvidia0
	PCIBusID  string // 00000000:1B:00.0
	Model     string // product name, as the vendor's library gives it
	MemoryMiB int64
	TellsXIDs bool      // its events are watched
	Driver    string    // version of the driver; "" where there is none
	Links     []string  // far ends of its NVLinks: a PCI bus id, or NVSwitch
	Instance  *Instance // nil for a whole device
	Facts     Facts
	TPU       *TPU // what only a TPU chip has; nil for others
}

// TPU is what only a TPU chip has.
type TPU struct {
	Topology string // of the slice that the node is in, such as 2x4; "" where it is not known
}

// Facts are further things that a device may tell of itself; "" where it does not.
type Facts struct {
	Serial       string
	VBIOS        string // version
	Library      string // version of the vendor's library
	InfoROM      string // version of its image, and of three of its objects
	InfoROMOEM   string
	InfoROMECC   string
	InfoROMPower string
}

// NVSwitch is the far end of a link into the node's switches, which connect every
// device that has one.
const NVSwitch = "nvswitch"

// Field names a value that a device may be able to tell.
type Field int

// Fields of a reading, with their units.
const (
	SMClock                   Field = iota // MHz
	MemClock                               // MHz
	MemoryTemp                             // °C
	GPUTemp                                // °C
	PowerUsage                             // W
	TotalEnergy                            // mJ since the driver was loaded
	PCIeReplay                             // count
	GPUUtil                                // %
	MemCopyUtil                            // %
	EncUtil                                // %
	DecUtil                                // %
	FBFree                                 // MiB
	FBUsed                                 // MiB
	FBReserved                             // MiB
	PowerLimit                             // W that the driver enforces, all limiters counted
	CorrectableRemappedRows                // count
	UncorrectableRemappedRows              // count
	RowRemapFailure                        // 0 or 1
	FBTotal                                // MiB
	FBUsedRatio                            // 0..1 of what is not reserved
	ECCSingleVolatile                      // count since the driver was loaded
	ECCDoubleVolatile                      // count since the driver was loaded
	ECCSingleAggregate                     // count in the device's life
	ECCDoubleAggregate                     // count in the device's life
	RetiredSingle                          // pages
	RetiredDouble                          // pages
	RetiredPending                         // 0 or 1
	PowerViolation                         // ns of throttling since the driver was loaded
	ThermalViolation                       // ns
	SyncBoostViolation                     // ns
	BoardLimitViolation                    // ns
	LowUtilViolation                       // ns
	ReliabilityViolation                   // ns
	NVLinkTx                               // bytes of data since the driver was loaded
	NVLinkRx                               // bytes of data since the driver was loaded
	NVLinkBandwidth                        // MB/s, both directions
	NVLinkFlitErrors                       // count of flow-control CRC errors since the driver was loaded
	NVLinkDataErrors                       // count of data CRC errors
	NVLinkReplays                          // count
	NVLinkRecoveries                       // count
	PCIeTxBytes                            // bytes since the driver was loaded
	PCIeRxBytes                            // bytes since the driver was loaded
	PCIeTx                                 // B/s
	PCIeRx                                 // B/s
	EngineActive                           // 0..1 of the time
	SMActive                               // 0..1 of the SMs' cycles
	SMOccupancy                            // 0..1 of the warps that fit
	TensorActive                           // 0..1 of the cycles
	DRAMActive                             // 0..1 of the cycles
	FP64Active                             // 0..1 of the cycles
	FP32Active                             // 0..1 of the cycles
	FP16Active                             // 0..1 of the cycles
	PowerManagementLimit                   // W, as set
	PowerMin                               // W, the least that can be set
	PowerMax                               // W, the most that can be set
	PowerDefault                           // W
	ClockEvents                            // bits of why clocks are held down, as NVML numbers them
	SlowdownTemp                           // °C at which the hardware slows down
	ThermalMargin                          // °C left until the nearest slowdown
	VGPULicensed                           // 0 or 1
	SWThermalSlowdown                      // ns that the driver held clocks down for heat
	HWThermalSlowdown                      // ns that the hardware halved clocks for heat
	HWPowerBrake                           // ns that the hardware halved clocks when told to from outside

	// What TPUs tell; NVIDIA's come above.
	DutyCycle              // % of the last while in which the chip computed
	AcceleratorMemoryTotal // bytes
	AcceleratorMemoryUsed  // bytes
	MemoryBandwidthUtil    // %
	TensorCoreUtil         // %
	QueuedPrograms         // count that wait to be executed
	IdleSeconds            // since the chip last computed
	StalledSeconds         // for which programs were queued and none moved
	MegascaleError         // 0 or 1
	SliceError             // 0 or 1
	Workload               // 1 when a workload's runtime answers for the device, 0 when there is none
	NumFields
)

// NVIDIAs are the fields below: those that NVIDIA's devices have.
const NVIDIAs = DutyCycle

// Reading is what a device told at one time. A field it could not tell is
// absent, never 0.
type Reading struct {
	Time  time.Time
	Calls []Call // that were made for it, in order
	// Processes that use the device; nil where they are not asked for, or not told.
	Processes *Processes
	// MIG tells that the device may be handed out in instances only.
	MIG bool
	// Instances that there are now; each is read as a device of its own.
	Instances []Device

	values [NumFields]float64
	has    [NumFields]bool
	bogus  [NumFields]bool
}

// Call is one call of the vendor's library.
type Call struct {
	Name string
	Took time.Duration
}

// Set a field's value. One that can't be is left out, and Bogus tells of it:
// drivers are known to give nonsense.
func (r *Reading) Set(f Field, v float64) {
	if !plausible(f, v) {
		r.bogus[f] = true
		return
	}
	r.values[f], r.has[f] = v, true
}

// Bogus is true where the device told a value that can't be.
func (r *Reading) Bogus(f Field) bool { return r.bogus[f] }

// Get a field's value; ok is false where the device could not tell.
func (r *Reading) Get(f Field) (v float64, ok bool) { return r.values[f], r.has[f] }

// XID is a critical event of a device.
type XID struct {
	UUID string
	Code uint64
}

// ErrLost is what Read answers for a device that fell off the bus.
var ErrLost = errors.New("device is lost")

// Source is where devices are read from. Its calls may stall: the collector
// gives each a deadline and goes on without the device. Calls come one at a
// time, except that a stalled one may still be under way.
type Source interface {
	// Devices lists every whole device that the source has seen, lost ones included.
	Devices(ctx context.Context) ([]Device, error)
	// Read one device, or an instance that the last reading of its parent told;
	// ErrLost when it is gone.
	Read(ctx context.Context, d Device) (Reading, error)
	// XIDs are the events since the last call.
	XIDs() []XID
	// Close gives the library back.
	Close() error
}

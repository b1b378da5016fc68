// Package device defines the vendor-neutral model of an accelerator and its readings.
// Sources produce readings and the collector consumes them. Neither imports the other.
package device

import (
	"context"
	"errors"
	"time"
)

// Vendor is the manufacturer of a device.
type Vendor int

// Vendors.
const (
	NVIDIA Vendor = iota
	Google
	AMD
)

// Device holds the properties of a device that do not change while the node runs.
type Device struct {
	Vendor      Vendor
	UUID        string // GPU-…
	Index       int    // number in the vendor's tools
	Minor       string // name of the device node: nvidia0, tpu0 or renderD128
	KubeletID   string // id in the vendor's device plugin, if it is neither UUID nor Minor
	PCIBusID    string // 00000000:1B:00.0
	Model       string // product name from the vendor's library
	MemoryMiB   int64
	ReportsXIDs bool      // the source watches the events of the device
	Driver      string    // version of the driver; empty if there is none
	Links       []string  // remote end of each NVLink or xGMI link: a PCI bus id, or NVSwitch
	Instance    *Instance // nil for a whole device
	Facts       Facts
	TPU         *TPU // nil for a device of another kind
}

// TPU holds the properties that only a TPU chip has.
type TPU struct {
	Topology string // of the node's slice, such as 2x4; empty if unknown
}

// Facts are optional properties of a device. Each is empty if the device does not report it.
type Facts struct {
	Serial       string
	Brand        string // such as Tesla
	VBIOS        string // version
	Library      string // version of the vendor's library
	InfoROM      string // version of the InfoROM image
	InfoROMOEM   string // version of the InfoROM's OEM object
	InfoROMECC   string // version of the InfoROM's ECC object
	InfoROMPower string // version of the InfoROM's power object
}

// NVSwitch is the remote end of a link into the node's switches. The switches connect
// every device that has such a link.
const NVSwitch = "nvswitch"

// Field identifies a value that a device may report.
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
	PowerLimit                             // W, enforced by the driver from all limiters
	CorrectableRemappedRows                // count
	UncorrectableRemappedRows              // count
	RowRemapFailure                        // 0 or 1
	RowRemapPending                        // 0 or 1
	FBTotal                                // MiB
	FBUsedRatio                            // 0..1 of what is not reserved
	ECCSingleVolatile                      // count since the driver was loaded
	ECCDoubleVolatile                      // count since the driver was loaded
	ECCSingleAggregate                     // count over the life of the device
	ECCDoubleAggregate                     // count over the life of the device
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
	NVLinkBandwidth                        // 1000 KiB/s, both directions
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
	PowerMin                               // W, smallest value that can be set
	PowerMax                               // W, largest value that can be set
	PowerDefault                           // W
	ClockEvents                            // bitmask of NVML's reasons for reduced clocks
	SlowdownTemp                           // °C at which the hardware slows down
	ThermalMargin                          // °C below the nearest slowdown temperature
	VGPULicensed                           // 0 or 1
	SWThermalSlowdown                      // ns in which the driver reduced clocks because of heat
	HWThermalSlowdown                      // ns in which the hardware halved clocks because of heat
	HWPowerBrake                           // ns in which the hardware halved clocks on an external signal
	ComputeMode                            // ExclusiveProcess, or another mode of NVML
	NVLinkTxRate                           // B/s
	NVLinkRxRate                           // B/s
	NVLinkCRCErrors                        // count of CRC errors, from Hopper on
	NVLinkHopperReplays                    // count, from Hopper on
	NVLinkHopperRecoveries                 // count, from Hopper on
	NVLinkRecoveriesSucceeded              // count, from Blackwell on
	NVLinkRecoveriesFailed                 // count, from Blackwell on
	NVLinkRecoveryEvents                   // count, from Blackwell on
	NVLinkSymbolErrors                     // count, from Blackwell on
	NVLinkEffectiveErrors                  // count, from Blackwell on
	NVLinkMalformedPackets                 // count, from Blackwell on
	NVLinkReceiveErrors                    // count, from Blackwell on
	PCIeLinkGeneration                     // current, such as 5
	PCIeLinkWidth                          // current number of lanes
	PCIeMaxLinkGeneration                  // that the device and the system support
	PCIeMaxLinkWidth                       // lanes that the device and the system support
	FanSpeed                               // % of the maximum; can exceed 100
	PerformanceState                       // 0 (fastest) to 15
	FabricStatus                           // 0 not supported, 1 not started, 2 in progress, 3 completed, 4 failed
	FabricClique                           // id of the clique, if completed
	FabricHealthMask                       // bitmask of NVML
	FabricHealth                           // 0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity

	// Fields of TPUs. Those of NVIDIA devices are above.

	DutyCycle              // % of the recent past in which the chip computed
	AcceleratorMemoryTotal // bytes
	AcceleratorMemoryUsed  // bytes
	MemoryBandwidthUtil    // %
	TensorCoreUtil         // %
	QueuedPrograms         // count of programs that wait for execution
	IdleSeconds            // since the chip last computed
	StalledSeconds         // in which programs were queued and no program made progress
	MegascaleError         // 0 or 1
	SliceError             // 0 or 1
	Workload               // 1 if the runtime of a workload responds for the device, otherwise 0
	NumFields
)

// ExclusiveProcess is the ComputeMode in which a single process may use the device. If pods
// share the device, this process is the server of MPS.
const ExclusiveProcess = 3

// FirstTPUField is the first field that NVIDIA devices do not have.
const FirstTPUField = DutyCycle

// Reading is the state of a device at one time. A field that the device could not
// report is absent, never 0.
type Reading struct {
	Time  time.Time
	Calls []Call // library calls that produced the reading, in order
	// Processes that use the device. Nil if the source does not read them or the device
	// does not report them.
	Processes *Processes
	// MIG is true if the device is in MIG mode, or in a partition mode of AMD. Only its
	// instances can be allocated then.
	MIG bool
	// PartitionsUnknown is true if the driver failed to report whether the device is in such a
	// mode. The device may not be allocatable as a whole then.
	PartitionsUnknown bool
	// FabricCluster is the UUID of the NVLink fabric that the device has joined. Empty if
	// there is none.
	FabricCluster string
	// Instances are the current MIG instances or partitions. The collector reads each as a
	// device of its own.
	Instances []Device

	values      [NumFields]float64
	has         [NumFields]bool
	implausible [NumFields]bool
}

// Call is one call of the vendor's library.
type Call struct {
	Name string
	Took time.Duration
	Err  error // nil if the call succeeded or the device does not support it
}

// ErrDenied is the error of a call that the driver refuses for lack of a privilege.
var ErrDenied = errors.New("the driver denies the call")

// Set sets a field. Some drivers report impossible values: Set drops such a value,
// and Bogus then returns true for the field.
func (r *Reading) Set(f Field, v float64) {
	if !isPlausible(f, v) {
		r.implausible[f] = true
		return
	}
	r.values[f], r.has[f] = v, true
}

// Bogus reports whether the device returned an impossible value for the field.
func (r *Reading) Bogus(f Field) bool { return r.implausible[f] }

// Get returns the value of a field. ok is false if the device did not report the field.
func (r *Reading) Get(f Field) (v float64, ok bool) { return r.values[f], r.has[f] }

// XID is a critical event of a device.
type XID struct {
	UUID string
	Code uint64
}

// ErrLost is the error of Read for a device that fell off the bus.
var ErrLost = errors.New("device is lost")

// ErrRestart is the error of Devices if only a new process can read the devices.
var ErrRestart = errors.New("the exporter must be restarted")

// Source reads the devices of one vendor. The collector makes one call at a time. Calls
// may stall: if a call exceeds its deadline, the collector continues without the device,
// and the stalled call may overlap with later calls.
type Source interface {
	// Devices lists every whole device that the source has seen, including lost devices. After
	// ErrRestart it is not called again.
	Devices(ctx context.Context) ([]Device, error)
	// Read reads a device, or a MIG instance from the last reading of its parent. The
	// error is ErrLost if the device fell off the bus.
	Read(ctx context.Context, d Device) (Reading, error)
	// XIDs returns the events since the last call.
	XIDs() []XID
	// Close releases the vendor's library.
	Close() error
}

package podmap

import "strings"

// Names of the consumable capacities that count as memory and cores.
const (
	CapacityMemory = "memory" // bytes
	CapacityCores  = "cores"  // hundredths of the device
)

// DeviceCapacity is an amount that resource claims consume of a device, in the unit of its driver.
// A claim without a request consumes Default. Other requests are rounded up: to one of Values, or
// to Min plus a multiple of Step, at most Max.
type DeviceCapacity struct {
	Value, Default float64
	Min, Max, Step float64
	Values         []float64 // ascending; nil if there is a range
}

// SharedDevice is a device that several resource claims can allocate, from a ResourceSlice.
type SharedDevice struct {
	Driver, Pool, Device string
	Capacities           map[string]DeviceCapacity // by name without the domain of the driver
}

// Consumption is what a claim consumes of a device, by name of the capacity.
type Consumption struct {
	Amounts map[string]float64
	// AdminAccess: the claim consumes nothing.
	AdminAccess bool
	// Unknown is the reason why Amounts is unknown. Empty if it is known.
	Unknown string
}

// Reasons of Consumption.Unknown.
const (
	ClaimPending     = "pending"     // the claim has not been read yet
	ClaimForbidden   = "forbidden"   // the exporter may not read claims
	ClaimUnreachable = "unreachable" // the API server did not respond
	ClaimNotFound    = "not_found"   // there is no such claim
	ClaimInvalid     = "invalid"     // the claim has no valid allocation of the device
)

// UnknownClaimReasons are all reasons of Consumption.Unknown.
var UnknownClaimReasons = []string{ClaimForbidden, ClaimInvalid, ClaimNotFound, ClaimPending, ClaimUnreachable}

// DeviceName returns the name of a device of a DRA driver, as in device.Device.Names. ok is false
// for the device of a driver that no source lists.
func DeviceName(driver, device string) (name string, ok bool) {
	parse := claimDrivers[driver]
	if parse == nil {
		return "", false
	}
	id, ok := parse(device)
	return id.name, ok
}

// CapacityName returns the name of a capacity without the domain, if that is the driver's:
// gpu.example.com/memory is memory for the driver gpu.example.com.
func CapacityName(driver, name string) string {
	if short, ok := strings.CutPrefix(name, driver+"/"); ok {
		return short
	}
	return name
}

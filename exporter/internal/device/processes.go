package device

// Processes that use a device, by their ids on the host.
type Processes struct {
	// Memory in use, in bytes.
	Memory map[int]float64
	// Busy part of the time since the last reading, in %; nil where it is not told.
	Busy map[int]float64
}

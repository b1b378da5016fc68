package device

// Processes are the processes that use a device, keyed by process id on the host.
type Processes struct {
	// Memory is the memory in use, in bytes.
	Memory map[int]float64
	// Busy is the percentage of the time since the last reading in which the process
	// kept the device busy. Nil if the driver does not report utilization by process.
	Busy map[int]float64
}

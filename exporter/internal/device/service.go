package device

// Service is an endpoint that a source queries in addition to the devices.
type Service struct {
	Name    string // runtime or plugin
	Address string
	State   ServiceState
	Err     error // reason for an idle or failed state, or the part of the data that is missing
}

// ServiceState is the state of a Service.
type ServiceState string

// States of a service.
const (
	ServiceServing ServiceState = "serving"
	ServiceIdle    ServiceState = "idle" // no workload runs, so no endpoint is expected
	ServiceFailed  ServiceState = "failed"
)

// ServiceReporter is a Source that depends on services.
type ServiceReporter interface {
	// Services returns the services as of the last listing of the devices.
	Services() []Service
}

// UndescribedCounter is a Source that counts devices which it cannot identify.
type UndescribedCounter interface {
	// Undescribed returns the number of devices, as of the last listing, that the
	// vendor's library counts but cannot describe.
	Undescribed() int
}

package device

// Service is something beside the devices that a source asks about them.
type Service struct {
	Name    string // runtime or plugin
	Address string
	State   ServiceState
	Err     error // why it is idle or has failed, or what it did not tell
}

// ServiceState is what a service is up to.
type ServiceState string

// States of a service.
const (
	ServiceServing ServiceState = "serving"
	ServiceIdle    ServiceState = "idle" // nothing runs that would serve
	ServiceFailed  ServiceState = "failed"
)

// Reporter is a Source that depends on services.
type Reporter interface {
	// Services as of the last listing of the devices.
	Services() []Service
}

// Counter is a Source that knows of devices which it can't list.
type Counter interface {
	// Undescribed devices as of the last listing: they are there, and do not tell
	// what they are.
	Undescribed() int
}

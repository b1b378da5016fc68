package installation

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Results of a check.
const (
	ResultOK      = "ok"
	ResultFault   = "fault"
	ResultWarning = "warning" // works, and should be changed
	ResultSkipped = "skipped" // the check could not read what it needs
)

// Diagnosis is the result of a check of one object.
type Diagnosis struct {
	Result  string `json:"result"`
	Subject string `json:"subject"`
	Message string `json:"message"`
	// Fix is what to do about a fault: usually a command.
	Fix string `json:"fix,omitempty"`
}

// Fault returns a fault. Its message can come from a worker, so it becomes one printable line.
func Fault(subject, message, fix string) Diagnosis {
	return Diagnosis{Result: ResultFault, Subject: subject, Message: query.Clip(message), Fix: fix}
}

// Warn returns a warning.
func Warn(subject, message, fix string) Diagnosis {
	d := Fault(subject, message, fix)
	d.Result = ResultWarning
	return d
}

// Fine returns a diagnosis without a fault.
func Fine(subject, message string) Diagnosis {
	return Diagnosis{Result: ResultOK, Subject: subject, Message: message}
}

// Skip returns a skipped check if the user may not read the objects, or the error.
func Skip(subject string, err error) ([]Diagnosis, error) {
	if apierrors.IsForbidden(err) {
		return []Diagnosis{{Result: ResultSkipped, Subject: subject, Message: "your user may not read it"}}, nil
	}
	return nil, hubclient.Reading(subject, err)
}

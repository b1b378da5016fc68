package cli

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Results of a check.
const (
	resultOK      = "ok"
	resultFault   = "fault"
	resultWarning = "warning" // works, and should be changed
	resultSkipped = "skipped" // the check could not read what it needs
)

// diagnosis is the result of a check of one object.
type diagnosis struct {
	Result  string `json:"result"`
	Subject string `json:"subject"`
	Message string `json:"message"`
	// Fix is what to do about a fault: usually a command.
	Fix string `json:"fix,omitempty"`
}

// fault returns a fault. Its message can come from a worker, so it becomes one printable line.
func fault(subject, message, fix string) diagnosis {
	return diagnosis{Result: resultFault, Subject: subject, Message: query.Clip(message), Fix: fix}
}

// warn returns a warning.
func warn(subject, message, fix string) diagnosis {
	d := fault(subject, message, fix)
	d.Result = resultWarning
	return d
}

func fine(subject, message string) diagnosis {
	return diagnosis{Result: resultOK, Subject: subject, Message: message}
}

// skip returns a skipped check if the user may not read the objects, or the error.
func skip(subject string, err error) ([]diagnosis, error) {
	if apierrors.IsForbidden(err) {
		return []diagnosis{{Result: resultSkipped, Subject: subject, Message: "your user may not read it"}}, nil
	}
	return nil, reading(subject, err)
}

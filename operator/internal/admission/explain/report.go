// Package explain writes the text of an explanation: why a workload is on its cluster, or
// why it waits. The package gate has the explanation itself.
package explain

import (
	"io"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// Values of the field "from" of reports: the source of an explanation.
const (
	FromOperator = "operator"
	FromObjects  = "objects"
)

// Report is the output of `kubectl plimsoll explain workload`. If From is FromObjects, the
// explanation contains only information from the hub's objects.
type Report struct {
	gate.Explanation
	Owner string `json:"owner,omitempty"`
	Queue string `json:"queue,omitempty"`
	// Waiting is false once the workload is placed, admitted or finished.
	Waiting bool    `json:"waiting"`
	Checks  []Check `json:"checks,omitempty"`
	From    string  `json:"from"`
	// NotShown lists information that is missing, with the reason.
	NotShown []string `json:"notShown,omitempty"`
}

// Check is an admission check of the workload. Ours is true for the check of a
// PlacementGate.
type Check struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	Ours    bool   `json:"ours,omitempty"`
}

// WriteRows writes the rows of the report to the writer that format.Table passes. If wide
// is true, the table of clusters has more columns.
func (r *Report) WriteRows(w io.Writer, paint format.Painter, now time.Time, wide bool) {
	r.writeSummary(w, paint, now)
	if len(r.Clusters) == 0 {
		return
	}
	r.writeClusters(w, now, wide)
	r.writeReservations(w, now)
}

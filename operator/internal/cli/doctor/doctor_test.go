package doctor

import (
	"bytes"
	"io"
	"regexp"
	"testing"

	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// Without its colors, a table on a terminal is the table in a file.
func TestColorsOfDiagnosesDoNotMoveColumns(t *testing.T) {
	write := func(paint format.Painter) string {
		var out bytes.Buffer
		diagnoses := []installation.Diagnosis{installation.Fine("Kueue's dispatcher", "plimsoll.dev/dispatcher"), installation.Fault("worker cluster1", "is not connected", "kubectl plimsoll connect"), installation.Warn("Kueue", "is not installed", "install it")}
		if err := format.Table(&out, func(w io.Writer) { writeDiagnoses(w, paint, diagnoses) }); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	colored := write(true)
	plain := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(colored, "")
	if want := write(false); plain != want || plain == colored {
		t.Errorf("got\n%swant\n%s", colored, want)
	}
}

package cli

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"plimsoll.dev/plimsoll/operator/internal/format"
)

// Without its colors, a table on a terminal is the table in a file.
func TestColorsOfDiagnosesDoNotMoveColumns(t *testing.T) {
	write := func(paint format.Painter) string {
		var out bytes.Buffer
		diagnoses := []diagnosis{fine("Kueue's dispatcher", "plimsoll.dev/dispatcher"), fault("worker cluster1", "is not connected", "kubectl plimsoll connect"), warn("Kueue", "is not installed", "install it")}
		if err := format.Table(&out, func(w io.Writer) { (&app{paint: paint}).writeDiagnoses(w, diagnoses) }); err != nil {
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

func TestProgressIsOnlyWrittenToTerminals(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	a := &app{IOStreams: genericclioptions.IOStreams{ErrOut: file}}
	p := a.progress()
	p.show("half")
	p.clear()
	if info, err := file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%d bytes of progress were written to a file (%v)", info.Size(), err)
	}
	var terminal bytes.Buffer
	p = progressLine{&terminal}
	p.show("%d%%", 50)
	p.clear()
	if got, want := terminal.String(), "\r\x1b[K50%\r\x1b[K"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

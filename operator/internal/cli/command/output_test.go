package command

import (
	"bytes"
	"os"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
)

func TestProgressIsOnlyWrittenToTerminals(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	a := &App{IOStreams: genericclioptions.IOStreams{ErrOut: file}}
	p := a.Progress()
	p.Show("half")
	p.Clear()
	if info, err := file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%d bytes of progress were written to a file (%v)", info.Size(), err)
	}
	var terminal bytes.Buffer
	p = ProgressLine{&terminal}
	p.Show("%d%%", 50)
	p.Clear()
	if got, want := terminal.String(), "\r\x1b[K50%\r\x1b[K"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

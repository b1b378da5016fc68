package cli

import (
	"bytes"
	"os"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
)

func TestNewPainterColorsOnlyOnTerminals(t *testing.T) {
	for _, tc := range []struct {
		name     string
		terminal bool
		env      map[string]string
		want     string
	}{
		{"terminal", true, nil, "\x1b[32mReady\x1b[0m"},
		{"pipe", false, nil, "Ready"},
		{"NO_COLOR", true, map[string]string{"NO_COLOR": "1"}, "Ready"},
		{"empty NO_COLOR", true, map[string]string{"NO_COLOR": ""}, "\x1b[32mReady\x1b[0m"},
		{"dumb terminal", true, map[string]string{"TERM": "dumb"}, "Ready"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPainter(tc.terminal, func(key string) string { return tc.env[key] })
			if got := p.state("Ready"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
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

package cli

import (
	"testing"
	"time"
)

func TestColorsAreForTerminalsThatWantThem(t *testing.T) {
	for name, c := range map[string]struct {
		terminal bool
		env      map[string]string
		want     string
	}{
		"terminal":               {true, nil, "\x1b[32mReady\x1b[0m"},
		"pipe":                   {false, nil, "Ready"},
		"NO_COLOR":               {true, map[string]string{"NO_COLOR": "1"}, "Ready"},
		"NO_COLOR without value": {true, map[string]string{"NO_COLOR": ""}, "\x1b[32mReady\x1b[0m"},
		"dumb terminal":          {true, map[string]string{"TERM": "dumb"}, "Ready"},
	} {
		p := colors(c.terminal, func(key string) string { return c.env[key] })
		if got := p.state("Ready"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestAgesAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1400 * time.Millisecond: "1s", 45 * time.Second: "45s", 5 * time.Minute: "5m", 200 * time.Second: "3m20s",
		70 * time.Minute: "70m", 5 * time.Hour: "5h", 100 * time.Hour: "4d",
	} {
		if got := short(d); got != want {
			t.Errorf("%s: got %q, want %q", d, got, want)
		}
	}
}

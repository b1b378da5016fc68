package format

import "testing"

func TestPainterColorsOnlyOnTerminals(t *testing.T) {
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
			if got := p.State("Ready"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

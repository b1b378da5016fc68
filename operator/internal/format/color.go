package format

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Painter colors text if it is true.
type Painter bool

// PainterFor returns the Painter of an output: it colors on terminals, unless NO_COLOR is
// set to a non-empty value (no-color.org) or the terminal is dumb.
func PainterFor(out io.Writer) Painter {
	file, ok := out.(*os.File)
	return newPainter(ok && term.IsTerminal(int(file.Fd())), os.Getenv)
}

func newPainter(terminal bool, env func(string) string) Painter {
	return Painter(terminal && env("NO_COLOR") == "" && env("TERM") != "dumb")
}

// Good colors text about something as it should be.
func (p Painter) Good(s string) string { return p.color("32", s) }

// Bad colors text about a failure.
func (p Painter) Bad(s string) string { return p.color("31", s) }

// Warning colors text about something that may need attention.
func (p Painter) Warning(s string) string { return p.color("33", s) }

// State colors the state of an admission check or the status of a condition.
func (p Painter) State(s string) string {
	switch s {
	case "Ready", "True":
		return p.Good(s)
	case "Rejected", "False":
		return p.Bad(s)
	}
	return p.Warning(s)
}

func (p Painter) color(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

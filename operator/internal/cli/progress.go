package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// progress is a line on a terminal that is written over. Elsewhere it is nothing.
type progress struct{ to io.Writer }

// progress on standard error, if that is a terminal that can go back to a line's start.
func (a *app) progress() progress {
	if file, ok := a.ErrOut.(*os.File); ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" {
		return progress{file}
	}
	return progress{}
}

func (p progress) show(format string, args ...any) {
	if p.to != nil {
		_, _ = fmt.Fprintf(p.to, "\r\x1b[K"+format, args...)
	}
}

func (p progress) clear() { p.show("") }

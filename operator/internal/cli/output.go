package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

var outputFormats = []string{"table", "wide", "json", "yaml"}

// outputFlag is the flag --output.
type outputFlag struct{ format string }

func (o *outputFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "output format: one of "+strings.Join(outputFormats, "|"))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputFormats, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
}

func (o *outputFlag) check() error {
	if slices.Contains(outputFormats, o.format) {
		return nil
	}
	return usagef("-o must be one of %s, not %q", strings.Join(outputFormats, "|"), o.format)
}

func (o *outputFlag) isWide() bool { return o.format == "wide" }

// print writes v as JSON or YAML, or calls writeTable. writeTable separates cells with
// tabs; print aligns them.
func (o *outputFlag) print(out io.Writer, v any, writeTable func(w io.Writer)) error {
	switch o.format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(v)
	case "yaml":
		text, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	w := tabwriter.NewWriter(&spaceTrimmer{to: out}, 0, 0, 2, ' ', 0)
	writeTable(w)
	return w.Flush()
}

// writeRow writes the cells of one table row. Errors are returned by the Flush of the
// tabwriter.
func writeRow(w io.Writer, cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }

// spaceTrimmer removes trailing spaces from each line. tabwriter writes them if the last
// cell of a row is empty.
type spaceTrimmer struct {
	to      io.Writer
	pending []byte
}

func (t *spaceTrimmer) Write(p []byte) (int, error) {
	t.pending = append(t.pending, p...)
	for {
		i := strings.IndexByte(string(t.pending), '\n')
		if i < 0 {
			return len(p), nil
		}
		if _, err := io.WriteString(t.to, strings.TrimRight(string(t.pending[:i]), " ")+"\n"); err != nil {
			return 0, err
		}
		t.pending = t.pending[i+1:]
	}
}

// painter colors text if it is true.
type painter bool

func painterFor(out io.Writer) painter {
	file, ok := out.(*os.File)
	return newPainter(ok && term.IsTerminal(int(file.Fd())), os.Getenv)
}

// newPainter colors on terminals, unless NO_COLOR is set to a non-empty value
// (no-color.org) or the terminal is dumb.
func newPainter(terminal bool, env func(string) string) painter {
	return painter(terminal && env("NO_COLOR") == "" && env("TERM") != "dumb")
}

func (p painter) good(s string) string    { return p.color("32", s) }
func (p painter) bad(s string) string     { return p.color("31", s) }
func (p painter) warning(s string) string { return p.color("33", s) }

func (p painter) color(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// state colors the state of an admission check or the status of a condition.
func (p painter) state(s string) string {
	switch s {
	case "Ready", "True":
		return p.good(s)
	case "Rejected", "False":
		return p.bad(s)
	}
	return p.warning(s)
}

// progressLine is a line on a terminal that each update overwrites. Without a terminal,
// progressLine writes nothing.
type progressLine struct{ to io.Writer }

// progress returns a progress line on standard error.
func (a *app) progress() progressLine {
	if file, ok := a.ErrOut.(*os.File); ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" {
		return progressLine{file}
	}
	return progressLine{}
}

func (p progressLine) show(format string, args ...any) {
	if p.to != nil {
		_, _ = fmt.Fprintf(p.to, "\r\x1b[K"+format, args...)
	}
}

func (p progressLine) clear() { p.show("") }

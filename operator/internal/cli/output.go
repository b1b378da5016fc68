package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

var formats = []string{"table", "wide", "json", "yaml"}

// output is the flag -o.
type output struct{ format string }

func (o *output) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "one of "+strings.Join(formats, "|"))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
}

func (o *output) check() error {
	for _, f := range formats {
		if o.format == f {
			return nil
		}
	}
	return usagef("-o must be one of %s, not %q", strings.Join(formats, "|"), o.format)
}

func (o *output) wide() bool { return o.format == "wide" }

// print v as JSON or YAML, or what table writes. Cells are separated by tabs.
func (o *output) print(out io.Writer, v any, table func(w io.Writer)) error {
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
	w := tabwriter.NewWriter(&trimmer{to: out}, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// line of cells. Errors of writing come back from Flush.
func line(w io.Writer, cells ...string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }

// trimmer drops the blanks with which tabwriter ends a line whose last cell is empty.
type trimmer struct {
	to   io.Writer
	rest []byte
}

func (t *trimmer) Write(p []byte) (int, error) {
	t.rest = append(t.rest, p...)
	for {
		i := strings.IndexByte(string(t.rest), '\n')
		if i < 0 {
			return len(p), nil
		}
		if _, err := io.WriteString(t.to, strings.TrimRight(string(t.rest[:i]), " ")+"\n"); err != nil {
			return 0, err
		}
		t.rest = t.rest[i+1:]
	}
}

// painter colors text for a terminal, or leaves it alone.
type painter bool

func painterFor(out io.Writer) painter {
	file, ok := out.(*os.File)
	return colors(ok && term.IsTerminal(int(file.Fd())), os.Getenv)
}

// colors are for a terminal, unless NO_COLOR is set to anything (no-color.org).
func colors(terminal bool, env func(string) string) painter {
	return painter(terminal && env("NO_COLOR") == "" && env("TERM") != "dumb")
}

func (p painter) good(s string) string { return p.code("32", s) }
func (p painter) bad(s string) string  { return p.code("31", s) }
func (p painter) wait(s string) string { return p.code("33", s) }

func (p painter) code(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// state of an admission check, colored.
func (p painter) state(s string) string {
	switch s {
	case "Ready", "True":
		return p.good(s)
	case "Rejected", "False":
		return p.bad(s)
	}
	return p.wait(s)
}

// since is how long ago t was, in one unit, or with two where it is short.
func since(now, t time.Time) string { return short(now.Sub(t)) }

// short duration as kubectl prints ages: 45s, 3m20s, 2h, 5d.
func short(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < 10*time.Minute:
		return strings.Replace(d.String(), "m0s", "m", 1)
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

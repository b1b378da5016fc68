package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/internal/format"
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

// print writes v as JSON or YAML, or the table whose rows writeRows writes.
func (o *outputFlag) print(out io.Writer, v any, writeRows func(w io.Writer)) error {
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
	return format.Table(out, writeRows)
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

func (p progressLine) show(message string, args ...any) {
	if p.to != nil {
		_, _ = fmt.Fprintf(p.to, "\r\x1b[K"+message, args...)
	}
}

func (p progressLine) clear() { p.show("") }

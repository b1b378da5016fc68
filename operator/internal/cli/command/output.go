package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

var outputFormats = []string{"table", "wide", "json", "yaml"}

// OutputFlag is the flag --output.
type OutputFlag struct{ format string }

// Add adds the flag to a command.
func (o *OutputFlag) Add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "output format: one of "+strings.Join(outputFormats, "|"))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputFormats, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
}

// Check returns a usage error for an unknown format.
func (o *OutputFlag) Check() error {
	if slices.Contains(outputFormats, o.format) {
		return nil
	}
	return Usagef("-o must be one of %s, not %q", strings.Join(outputFormats, "|"), o.format)
}

// IsWide reports whether the format is wide.
func (o *OutputFlag) IsWide() bool { return o.format == "wide" }

// Print writes v as a JSON or YAML document of a kind, or the table whose rows writeRows writes.
func (o *OutputFlag) Print(out io.Writer, kind string, v any, writeRows func(w io.Writer)) error {
	switch o.format {
	case "json":
		document, err := encodeDocument(kind, v)
		if err != nil {
			return err
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, document, "", "  "); err != nil {
			return err
		}
		_, err = out.Write(indented.Bytes())
		return err
	case "yaml":
		document, err := encodeDocument(kind, v)
		if err != nil {
			return err
		}
		text, err := yaml.JSONToYAML(document)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	return format.Table(out, writeRows)
}

// encodeDocument encodes v as JSON with apiVersion and kind, and a list as the items of an object.
// operator/docs/json.md lists the kinds. Fields are added to a version, and never removed or given
// another meaning.
func encodeDocument(kind string, v any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if reflect.ValueOf(v).Kind() == reflect.Slice {
		v = map[string]any{"items": v}
	}
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	head := fmt.Sprintf(`{"apiVersion": %q, "kind": %q`, v1alpha1.GroupVersion.String(), kind)
	if rest := body.Bytes()[1:]; rest[0] != '}' {
		return append([]byte(head+", "), rest...), nil
	}
	return []byte(head + "}\n"), nil
}

// ProgressLine is a line on a terminal that each update overwrites. Without a terminal,
// ProgressLine writes nothing.
type ProgressLine struct{ to io.Writer }

// Progress returns a progress line on standard error.
func (a *App) Progress() ProgressLine {
	if file, ok := a.ErrOut.(*os.File); ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" {
		return ProgressLine{file}
	}
	return ProgressLine{}
}

// Show replaces the line.
func (p ProgressLine) Show(message string, args ...any) {
	if p.to != nil {
		_, _ = fmt.Fprintf(p.to, "\r\x1b[K"+message, args...)
	}
}

// Clear removes the line.
func (p ProgressLine) Clear() { p.Show("") }

package format

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	paint := Painter(true)
	for _, tc := range []struct {
		name string
		rows [][]string
		want string
	}{
		{"columns", [][]string{{"NAME", "FREE", "WHY"}, {"a", "12", "long text"}, {"longer", "3", ""}}, "NAME    FREE  WHY\na       12    long text\nlonger  3\n"},
		{"the last cell of a row widens no column", [][]string{{"a", "b"}, {"a long note"}, {"longer", "c"}}, "a  b\na long note\nlonger  c\n"},
		{"an empty column", [][]string{{"", "x"}, {"", "→ y"}}, "  x\n  → y\n"},
		{"letters of several bytes", [][]string{{"é→", "x"}, {"abc", "y"}}, "é→   x\nabc  y\n"},
		{"colors take no room", [][]string{{"RESULT", "SUBJECT"}, {paint.Good("ok"), "x"}, {"", "→ y"}, {paint.Bad("warning"), paint.Warning("z")}},
			"RESULT   SUBJECT\n\x1b[32mok\x1b[0m       x\n         → y\n\x1b[31mwarning\x1b[0m  \x1b[33mz\x1b[0m\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			err := Table(&out, func(w io.Writer) {
				for _, row := range tc.rows {
					Row(w, row...)
				}
			})
			if diff := cmp.Diff(tc.want, out.String()); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

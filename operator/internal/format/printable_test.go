package format

import (
	"io"
	"strings"
	"testing"
)

// Users and workers choose texts in cells. They must not write to the title of an administrator's
// terminal, clear it, or add rows.
func TestRowControlsNothingButColors(t *testing.T) {
	for _, tc := range []struct{ name, cell, want string }{
		{"plain", "zone=é→", "zone=é→"},
		{"painted", Painter(true).Bad("Rejected") + ": full", "\x1b[31mRejected\x1b[0m: full"},
		{"title and clear", "zone\x1b]0;pwned\x07\x1b[2J", "zone�]0;pwned��[2J"},
		{"escape in a painted text", Painter(true).Good("a\x1b[2Jb"), "\x1b[32ma�[2Jb\x1b[0m"},
		{"C1 control and direction", "a\u009b2J\u202eb", "a�2J�b"},
		{"row and cell", "forbidden\nfaked\trow\r", "forbidden faked row"},
		{"invalid UTF-8", "a\xffb", "a�b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			if err := Table(&out, func(w io.Writer) { Row(w, tc.cell) }); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSuffix(out.String(), "\n"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

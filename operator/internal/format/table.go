package format

import (
	"io"
	"strings"
	"text/tabwriter"
)

// Table writes a table to out. writeRows writes its rows with Row.
func Table(out io.Writer, writeRows func(w io.Writer)) error {
	w := tabwriter.NewWriter(&spaceTrimmer{to: out}, 0, 0, 2, ' ', 0)
	writeRows(w)
	return w.Flush()
}

// Row writes the cells of one table row. Table returns its errors.
func Row(w io.Writer, cells ...string) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = printable(cell)
	}
	_, _ = io.WriteString(w, strings.Join(texts, "\t")+"\n")
}

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

package format

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

// columnGap is the number of spaces between two columns.
const columnGap = 2

// Table writes a table to out. writeRows writes its rows with Row. A column is as wide as its widest
// cell in consecutive rows that have a cell to the right of it: the last cell of a row widens no
// column. Colors take no room.
func Table(out io.Writer, writeRows func(w io.Writer)) error {
	rows := Rows(writeRows)
	for column := 0; alignColumn(rows, column); column++ {
	}
	for _, cells := range rows {
		if _, err := io.WriteString(out, strings.TrimRight(strings.Join(cells, ""), " ")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// Rows returns the cells of the rows that writeRows writes with Row, for an output that is no terminal.
func Rows(writeRows func(w io.Writer)) (rows [][]string) {
	var text bytes.Buffer
	writeRows(&text)
	for line := range strings.Lines(text.String()) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows
}

// Row writes the cells of one table row. Table returns its errors.
func Row(w io.Writer, cells ...string) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = printable(cell)
	}
	_, _ = io.WriteString(w, strings.Join(texts, "\t")+"\n")
}

// alignColumn pads the cells of a column that have a cell to their right. It returns false if there
// are none.
func alignColumn(rows [][]string, column int) (found bool) {
	isInColumn := func(row int) bool { return row < len(rows) && len(rows[row]) > column+1 }
	for start := 0; start < len(rows); start++ {
		end, width := start, 0
		for ; isInColumn(end); end++ {
			width = max(width, visibleWidth(rows[end][column]))
		}
		for _, cells := range rows[start:end] {
			cells[column] += strings.Repeat(" ", width+columnGap-visibleWidth(cells[column]))
			found = true
		}
		start = end
	}
	return found
}

var colorSequence = regexp.MustCompile("\x1b\\[[0-9;]*m")

// visibleWidth is the number of characters of s on a terminal.
func visibleWidth(s string) int {
	return utf8.RuneCountInString(colorSequence.ReplaceAllString(s, ""))
}

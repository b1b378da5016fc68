package format

import (
	"regexp"
	"strings"
	"unicode"
)

// paintSequence is an escape sequence that Painter writes.
var paintSequence = regexp.MustCompile("\x1b\\[(?:31|32|33|0)m")

// printable returns a cell in which nothing but the sequences of Painter controls the terminal. Cells
// show texts of users and of other clusters. White space becomes a space, and any other character that is
// not printable the replacement character.
func printable(cell string) string {
	replace := func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}
	var text strings.Builder
	end := 0
	for _, at := range paintSequence.FindAllStringIndex(cell, -1) {
		text.WriteString(strings.Map(replace, cell[end:at[0]]))
		text.WriteString(cell[at[0]:at[1]])
		end = at[1]
	}
	text.WriteString(strings.Map(replace, cell[end:]))
	return text.String()
}

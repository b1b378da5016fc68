package format

import (
	"regexp"
	"strings"
	"unicode"
)

// paintSequence is an escape sequence that Painter writes.
var paintSequence = regexp.MustCompile("\x1b\\[(?:31|32|33|0)m")

// Printable returns a text in which nothing controls a terminal or the direction of writing. White space becomes a space,
// and any other character that is not printable the replacement character.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, text)
}

// printable is Printable for a cell, which keeps the sequences of Painter. Cells show texts of users and of other clusters.
func printable(cell string) string {
	var text strings.Builder
	for _, p := range Parts(cell) {
		text.WriteString(p.sequence + Printable(p.Text))
	}
	return text.String()
}

// Part is a part of a cell.
type Part struct {
	Text string
	// Tone is the method of Painter that colored the text: good, warning or bad. Empty means no color.
	Tone string
	// sequence precedes the text.
	sequence string
}

var tones = map[string]string{"\x1b[32m": "good", "\x1b[33m": "warning", "\x1b[31m": "bad"}

// Parts splits a cell at the sequences of Painter.
func Parts(cell string) []Part {
	parts, end := []Part{{}}, 0
	for _, at := range paintSequence.FindAllStringIndex(cell, -1) {
		parts[len(parts)-1].Text = cell[end:at[0]]
		sequence := cell[at[0]:at[1]]
		parts = append(parts, Part{Tone: tones[sequence], sequence: sequence})
		end = at[1]
	}
	parts[len(parts)-1].Text = cell[end:]
	return parts
}

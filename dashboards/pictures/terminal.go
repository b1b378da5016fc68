package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"
)

// Size of the terminal in columns, and of a character cell in pixels.
const (
	columns    = 160
	cellWidth  = 7.8
	lineHeight = 18
	margin     = 16
	titleBar   = 34
)

// drawTerminal draws commands, in lines that begin with "$ ", and their output as a terminal window. hash
// identifies the sources of the output; the test of this package reads it.
func drawTerminal(title, text, hash string) []byte {
	lines := visibleLines(text)
	width, height := int(columns*cellWidth)+2*margin, titleBar+len(lines)*lineHeight+margin
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", width, height, width, height)
	fmt.Fprintf(&b, "<!-- sources: %s -->\n<title>%s</title>\n", hash, html.EscapeString(title))
	b.WriteString("<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#c9d1d9;white-space:pre}" +
		".title{fill:#ffffff;font-weight:bold}.good{fill:#7ee787}.wait{fill:#e3b341}.head{fill:#79c0ff}.faint{fill:#8b949e}</style>\n")
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#0d1117\"/>\n", width, height)
	for i, color := range []string{"#ff5f56", "#ffbd2e", "#27c93f"} {
		fmt.Fprintf(&b, "<circle cx=\"%d\" cy=\"17\" r=\"6\" fill=\"%s\"/>\n", margin+6+20*i, color)
	}
	for i, line := range lines {
		if line == "" {
			continue
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" class=\"%s\" xml:space=\"preserve\">%s</text>\n",
			margin, titleBar+(i+1)*lineHeight-4, class(line), html.EscapeString(line))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// visibleLines splits an output into lines of at most the terminal's width. It leaves out
// the progress of builds.
func visibleLines(output string) []string {
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(output), "\n") {
		if strings.HasPrefix(line, "lab: ") {
			continue
		}
		indent := len(line) - len(strings.TrimLeft(line, " "))
		for len(line) > columns {
			cut := strings.LastIndexByte(line[:columns+1], ' ')
			if cut <= indent {
				cut = columns
			}
			lines = append(lines, strings.TrimRight(line[:cut], " "))
			line = strings.Repeat(" ", indent+2) + strings.TrimLeft(line[cut:], " ")
		}
		lines = append(lines, line)
	}
	return lines
}

// class returns the style of a line.
func class(line string) string {
	text := strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(text, "$ "), strings.HasPrefix(text, "["):
		return "title"
	case strings.HasPrefix(text, "CLUSTER "), strings.HasPrefix(text, "RESERVED FOR"), strings.HasPrefix(text, "NAMESPACE "):
		return "head"
	case strings.HasPrefix(text, "done in"), strings.Contains(text, " -> "), strings.HasPrefix(text, "Starts: "):
		return "good"
	case strings.Contains(text, " waits: "), strings.HasPrefix(text, "Waits for:"):
		return "wait"
	case strings.HasPrefix(text, "Not shown yet"):
		return "faint"
	}
	return "line"
}

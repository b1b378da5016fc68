package ui

import (
	"context"
	"embed"
	"html/template"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// pageRows is the number of rows of a table on one page.
const pageRows = 100

//go:embed files
var files embed.FS

// templates escape all texts for the place where they stand.
var templates = template.Must(template.New("").Funcs(template.FuncMap{"time": format.Time}).ParseFS(files, "files/page.html"))

// page is what a template shows.
type page struct {
	Name, Title string
	Fields      []field
	Sections    []section
	// Notes are facts that the page lacks, each with the reason.
	Notes []string
	// Time is from when the facts are.
	Time time.Time
	// Refresh is the number of milliseconds between two events of a stream.
	Refresh int64
	// Retry is the number of seconds after which a browser without JavaScript loads the page again.
	Retry int
}

// field is an input of the page's form.
type field struct{ Name, Label, Value string }

// section is a list of facts, a table, or the story of a job.
type section struct {
	Title, Text string
	Facts       []fact
	Head        []string
	Rows        [][]cell
	Story       []explain.Event
	// More has links to the other pages of a table.
	More []link
	// Shown says which rows are shown, if that are not all.
	Shown string
}

type fact struct {
	Name  string
	Value cell
}

// cell is a text with its colors, and optionally a link or a chart.
type cell struct {
	Parts []format.Part
	Link  string
	Chart *chart
}

type link struct{ Text, URL string }

// text returns a cell of a text. Characters that are not printable become visible.
func text(s string) cell { return cell{Parts: []format.Part{{Text: format.Printable(s)}}} }

func texts(all ...string) (cells []cell) {
	for _, s := range all {
		cells = append(cells, text(s))
	}
	return cells
}

func linked(s, page string, query url.Values) cell {
	c := text(s)
	c.Link = page + "?" + query.Encode()
	return c
}

func toned(tone, s string) cell {
	c := text(s)
	c.Parts[0].Tone = tone
	return c
}

// sectionsOf returns what a command of the plugin prints: facts, whose names end with a colon, and tables.
func sectionsOf(title string, writeRows func(w io.Writer)) []section {
	sections := []section{{Title: title}}
	last := func() *section { return &sections[len(sections)-1] }
	for _, row := range format.Rows(writeRows) {
		cells := make([]cell, len(row))
		for i, s := range row {
			cells[i].Parts = format.Parts(s)
		}
		name, isFact := strings.CutSuffix(row[0], ":")
		switch {
		case len(row) == 1 && row[0] == "":
			sections = append(sections, section{})
		case len(last().Head) > 0:
			last().Rows = append(last().Rows, cells)
		case len(row) == 2 && (isFact || row[0] == ""):
			last().Facts = append(last().Facts, fact{name, cells[1]})
		default:
			last().Head = row
		}
	}
	return sections
}

// Label is the head of a column, for narrow screens.
func (s section) Label(i int) string {
	if i < len(s.Head) {
		return s.Head[i]
	}
	return ""
}

// filtered keeps the rows that contain the text of the field q, and of these the page of the field page.
func (s section) filtered(name string, q url.Values) section {
	all := len(s.Rows)
	if want := strings.ToLower(q.Get("q")); want != "" {
		var kept [][]cell
		for _, row := range s.Rows {
			if contains(row, want) {
				kept = append(kept, row)
			}
		}
		s.Rows = kept
	}
	found := len(s.Rows)
	number, err := strconv.Atoi(q.Get("page"))
	last := max(1, (found+pageRows-1)/pageRows)
	if err != nil || number < 1 || number > last {
		number = 1
	}
	begin, end := (number-1)*pageRows, min(number*pageRows, found)
	s.Rows = s.Rows[begin:end]
	to := func(text string, n int) {
		if n >= 1 && n <= last && n != number {
			other := url.Values{}
			for _, key := range []string{"q", "namespace", "policy"} {
				if value := q.Get(key); value != "" {
					other.Set(key, value)
				}
			}
			other.Set("page", strconv.Itoa(n))
			s.More = append(s.More, link{text, name + "?" + other.Encode()})
		}
	}
	to("previous", number-1)
	to("next", number+1)
	switch {
	case found == 0 && all > 0:
		s.Shown = "None of " + strconv.Itoa(all) + " matches."
	case len(s.Rows) < all:
		s.Shown = strconv.Itoa(begin+1) + " to " + strconv.Itoa(end) + " of " + strconv.Itoa(found)
		if found < all {
			s.Shown += " that match, of " + strconv.Itoa(all) + " in all"
		}
	}
	return s
}

func contains(row []cell, want string) bool {
	for _, c := range row {
		for _, p := range c.Parts {
			if strings.Contains(strings.ToLower(p.Text), want) {
				return true
			}
		}
	}
	return false
}

// builder builds the content of a page.
type builder func(ctx context.Context, v *view, q url.Values) *page

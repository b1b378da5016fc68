package promql

import "strings"

// variable is one $name outside string literals; text[start:end] includes the $.
type variable struct {
	name       string
	start, end int
}

// scan finds the variables of a template and returns its text with each replaced
// by a number of the same length, so that every position stays what it was.
func scan(text string) (string, []variable) {
	var found []variable
	out := []byte(text)
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"' || c == '\'' || c == '`':
			i = skipString(text, i)
		case c == '#':
			i = skipComment(text, i)
		case c == '$':
			end := nameEnd(text, i+1)
			if end == i+1 {
				i++
				continue
			}
			found = append(found, variable{text[i+1 : end], i, end})
			copy(out[i:end], strings.Repeat("0", end-i))
			out[end-1] = '1' // the value 1, which is a duration, too
			i = end
		default:
			i++
		}
	}
	return string(out), found
}

// skipString returns the offset behind the string literal that begins at i.
func skipString(text string, i int) int {
	quote := text[i]
	for i++; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote != '`':
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return len(text)
}

func skipComment(text string, i int) int {
	if n := strings.IndexAny(text[i:], "\r\n"); n >= 0 {
		return i + n
	}
	return len(text)
}

// nameEnd returns the offset behind the name that begins at i, or i if none does.
func nameEnd(text string, i int) int {
	start := i
	for i < len(text) {
		c := text[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		digit := '0' <= c && c <= '9'
		if !letter && (!digit || i == start) {
			break
		}
		i++
	}
	return i
}

// wholeVariable returns the name when a label value is $name and nothing else;
// partial says that it holds a $name beside something else.
func wholeVariable(value string) (name string, partial bool) {
	for i := 0; i < len(value); i++ {
		if value[i] != '$' {
			continue
		}
		end := nameEnd(value, i+1)
		if end == i+1 {
			continue
		}
		if i == 0 && end == len(value) {
			return value[1:], false
		}
		return value[i+1 : end], true
	}
	return "", false
}

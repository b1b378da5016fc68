package promql

import "strings"

// variable is a $name outside of string literals, at text[start:end] including the $.
type variable struct {
	name       string
	start, end int
}

// scan finds the variables of a template. It returns the text with each variable replaced
// by a number of the same length, so that positions stay the same.
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
			out[end-1] = '1' // 1 is valid as a number and as a duration
			i = end
		default:
			i++
		}
	}
	return string(out), found
}

// skipString returns the offset after the string literal at i.
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

// skipComment returns the offset after the comment at i.
func skipComment(text string, i int) int {
	if n := strings.IndexAny(text[i:], "\r\n"); n >= 0 {
		return i + n
	}
	return len(text)
}

// nameEnd returns the offset after the name at i. It returns i if there is no name.
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

// wholeVariable returns the name of the variable in a label value. partial is true if the
// value contains other text as well.
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

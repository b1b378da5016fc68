package query

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxTextBytes is the longest text that is kept of a JSON string. The rest is read and
	// discarded.
	maxTextBytes = 1024
	// maxMessageBytes is the longest text that is kept of an error or a warning. A token in
	// it must be complete to be recognized and hidden.
	maxMessageBytes = 16 << 10
	// ellipsis ends a text that is cut off.
	ellipsis = "…"
	// maxJSONDepth is the deepest nesting of a response. Responses of Prometheus have 6.
	maxJSONDepth = 64
)

var (
	errBadJSON = errors.New("the response is not valid JSON")
	errCutOff  = errors.New("the response is cut off: the source or a proxy ended the connection in the middle of it")
)

// jsonScanner reads JSON from a stream in a fixed amount of memory: it keeps at most
// maxTextBytes of a string. After the first error, which err holds, every method returns
// zero values.
type jsonScanner struct {
	reader   io.Reader
	buf      *[]byte // from scanBuffers
	pos, end int     // unread part of buf
	scratch  []byte  // the last string, if it was not contiguous in buf
	depth    int
	maxText  int
	err      error
}

var scanBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

func newJSONScanner(r io.Reader) *jsonScanner {
	return &jsonScanner{reader: r, buf: scanBuffers.Get().(*[]byte), maxText: maxTextBytes}
}

// close returns the buffer to the pool. Slices that text returned become invalid.
func (s *jsonScanner) close() {
	scanBuffers.Put(s.buf)
	s.buf, s.pos, s.end = nil, 0, 0
	s.fail(io.ErrClosedPipe)
}

func (s *jsonScanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// fill makes at least one unread byte available. It returns false at the end of the input,
// without an error, and after an error.
func (s *jsonScanner) fill() bool {
	for s.err == nil && s.pos == s.end {
		n, err := s.reader.Read(*s.buf)
		s.pos, s.end = 0, n
		switch {
		case n > 0:
			return true
		case errors.Is(err, io.EOF):
			return false
		case err != nil:
			s.fail(err)
		}
	}
	return s.err == nil
}

// read returns the next byte and consumes it.
func (s *jsonScanner) read() byte {
	if !s.fill() {
		s.fail(s.errAtEnd())
		return 0
	}
	s.pos++
	return (*s.buf)[s.pos-1]
}

// peek returns the first byte that is no white space, without consuming it.
func (s *jsonScanner) peek() byte {
	for s.fill() {
		switch c := (*s.buf)[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return c
		}
	}
	s.fail(s.errAtEnd())
	return 0
}

// errAtEnd is the error of an input that ends too early. An input without a first character is
// no JSON at all.
func (s *jsonScanner) errAtEnd() error {
	if s.depth > 0 {
		return errCutOff
	}
	return errBadJSON
}

// take consumes c if it is the next byte after white space.
func (s *jsonScanner) take(c byte) bool {
	if s.peek() != c || s.err != nil {
		return false
	}
	s.pos++
	return true
}

func (s *jsonScanner) expect(c byte) {
	if !s.take(c) {
		s.fail(errBadJSON)
	}
}

// finish fails unless only white space is left.
func (s *jsonScanner) finish() {
	for s.fill() {
		switch (*s.buf)[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			s.fail(errBadJSON)
		}
	}
}

// object calls visit with each key of an object. visit must read the value. The key is
// valid until then.
func (s *jsonScanner) object(visit func(key []byte)) {
	s.enter('{')
	for first := true; s.err == nil && !s.take('}'); first = false {
		if !first {
			s.expect(',')
		}
		if s.peek() != '"' {
			s.fail(errBadJSON)
			return
		}
		key := s.text()
		if s.pos == s.end || (*s.buf)[s.pos] != ':' { // refilling the buffer overwrites the key
			key = append([]byte(nil), key...)
		}
		if s.expect(':'); s.err != nil {
			return
		}
		visit(key)
	}
	s.depth--
}

// array calls visit before each element of an array. visit must read the element.
func (s *jsonScanner) array(visit func()) {
	s.enter('[')
	for first := true; s.err == nil && !s.take(']'); first = false {
		if !first {
			s.expect(',')
		}
		if s.err == nil {
			visit()
		}
	}
	s.depth--
}

func (s *jsonScanner) enter(c byte) {
	if s.expect(c); s.depth >= maxJSONDepth {
		s.fail(errBadJSON)
	}
	s.depth++
}

// text reads a string and returns its first maxText bytes, which are valid until the
// next call of a method.
func (s *jsonScanner) text() []byte {
	if s.expect('"'); s.err != nil {
		return nil
	}
	window := (*s.buf)[s.pos:s.end]
	for i, c := range window {
		if c == '"' {
			s.pos += i + 1
			return window[:min(i, s.maxText)]
		}
		if c == '\\' || c < ' ' {
			break
		}
	}
	return s.slowText()
}

// slowText reads the rest of a string that has escapes or ends outside of the buffer.
func (s *jsonScanner) slowText() []byte {
	s.scratch = s.scratch[:0]
	for s.err == nil {
		switch c := s.read(); {
		case c == '"':
			return s.scratch
		case c < ' ':
			s.fail(errBadJSON)
		case c == '\\':
			s.escape()
		case len(s.scratch) < s.maxText:
			s.scratch = append(s.scratch, c)
		}
	}
	return nil
}

// escape reads an escape sequence after its backslash.
func (s *jsonScanner) escape() {
	c := s.read()
	r, ok := map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}[c]
	switch {
	case c == 'u':
		r = s.hexRune()
	case !ok:
		s.fail(errBadJSON)
	}
	if len(s.scratch) < s.maxText {
		s.scratch = utf8.AppendRune(s.scratch, r)
	}
}

// hexRune reads the digits of \uXXXX. Each half of a surrogate pair becomes the
// replacement character, unless the pair is complete.
func (s *jsonScanner) hexRune() rune {
	digits := [4]byte{s.read(), s.read(), s.read(), s.read()}
	code, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		s.fail(errBadJSON)
		return 0
	}
	if r := rune(code); !utf16.IsSurrogate(r) {
		return r
	}
	return utf8.RuneError // names of clusters and metrics have no such characters
}

// token reads a number, true, false or null.
func (s *jsonScanner) token() []byte {
	s.peek()
	s.scratch = s.scratch[:0]
	for s.fill() {
		c := (*s.buf)[s.pos]
		if c != '+' && c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != 'E' {
			break
		}
		if s.pos++; len(s.scratch) > 64 {
			s.fail(errBadJSON)
		}
		s.scratch = append(s.scratch, c)
	}
	if s.err != nil || !isJSONToken(s.scratch) {
		s.fail(errBadJSON)
		return nil
	}
	return s.scratch
}

// isJSONToken reports whether token is a literal or a number of JSON.
func isJSONToken(token []byte) bool {
	switch string(token) {
	case "true", "false", "null":
		return true
	}
	rest := strings.TrimPrefix(string(token), "-")
	digits := func() bool {
		n := len(rest)
		rest = strings.TrimLeft(rest, "0123456789")
		return len(rest) < n
	}
	leadingZero := len(rest) > 1 && rest[0] == '0' && rest[1] >= '0' && rest[1] <= '9'
	if leadingZero || !digits() {
		return false
	}
	if fraction, ok := strings.CutPrefix(rest, "."); ok {
		if rest = fraction; !digits() {
			return false
		}
	}
	if rest != "" && (rest[0] == 'e' || rest[0] == 'E') {
		rest = rest[1:]
		if rest != "" && (rest[0] == '+' || rest[0] == '-') {
			rest = rest[1:]
		}
		if !digits() {
			return false
		}
	}
	return rest == ""
}

// skip reads a value of any type.
func (s *jsonScanner) skip() {
	switch s.peek() {
	case '{':
		s.object(func([]byte) { s.skip() })
	case '[':
		s.array(s.skip)
	case '"':
		s.text()
	default:
		s.token()
	}
}

// textOrSkip reads a value and returns its printable text. A value that is no string is
// skipped.
func (s *jsonScanner) textOrSkip() string {
	if s.peek() != '"' {
		s.skip()
		return ""
	}
	return shortened(s.text(), s.maxText)
}

// message reads a text for people, such as an error.
func (s *jsonScanner) message() string {
	s.maxText = maxMessageBytes
	defer func() { s.maxText = maxTextBytes }()
	return s.textOrSkip()
}

// messageText reads a text for people, which is valid until the next read.
func (s *jsonScanner) messageText() []byte {
	s.maxText = maxMessageBytes
	defer func() { s.maxText = maxTextBytes }()
	return s.text()
}

// shortened returns text with an ellipsis if it may have been cut off after n bytes.
func shortened(text []byte, n int) string {
	if len(text) >= n {
		return printable(text) + ellipsis
	}
	return printable(text)
}

// printable returns text with a replacement character for each byte or character that a
// terminal would not print: control characters, escape sequences, directional marks.
func printable(text []byte) string {
	clean := true
	for _, c := range text {
		clean = clean && c >= ' ' && c < utf8.RuneSelf-1
	}
	s := string(text)
	if !clean {
		s = printableText(s)
	}
	return s
}

func printableText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, s)
}

package lint

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

// find returns the value at a path such as spec.scores[0].query, or nil if there is none.
func (d *document) find(path string) *yaml.Node {
	if n, rest, _ := walkPath(d.root, path); rest == "" {
		return n
	}
	return nil
}

// items returns the items of a list.
func (d *document) items() []*yaml.Node {
	list := d.find("items")
	if list != nil && list.Kind == yaml.AliasNode {
		list = list.Alias
	}
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	return list.Content
}

// nearest returns the key at a path. If the path does not exist, nearest returns the
// value of its innermost existing parent.
func (d *document) nearest(path string) *yaml.Node {
	value, rest, key := walkPath(d.root, path)
	if rest == "" && key != nil {
		return key
	}
	return value
}

// walkPath follows path from n as far as nodes exist. rest is the part of the path that
// does not exist, key the key of the last step into a mapping.
func walkPath(n *yaml.Node, path string) (value *yaml.Node, rest string, key *yaml.Node) {
	for path != "" {
		step, after := cutStep(path)
		next, k := child(n, step)
		if next == nil {
			return n, path, key
		}
		n, path, key = next, after, k
	}
	return n, "", key
}

// cutStep splits a path after its first step: "scores[0].query" into "scores" and
// "[0].query", "[0].query" into "[0]" and "query".
func cutStep(path string) (step, rest string) {
	if strings.HasPrefix(path, "[") {
		end := strings.IndexByte(path, ']') + 1
		if end == 0 {
			return path, ""
		}
		return path[:end], strings.TrimPrefix(path[end:], ".")
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path, ""
	}
	return path[:end], strings.TrimPrefix(path[end:], ".")
}

// child returns the value and key of one step from n, or nil if there is none.
func child(n *yaml.Node, step string) (value, key *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if index, ok := strings.CutPrefix(step, "["); ok {
		i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if err != nil || n.Kind != yaml.SequenceNode || i >= len(n.Content) {
			return nil, nil
		}
		return n.Content[i], n.Content[i]
	}
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == step {
			return n.Content[i+1], n.Content[i]
		}
	}
	return nil, nil
}

// addProblems adds the problems of the expression at path.
func (l *linter) addProblems(d *document, path string, problems []promql.Problem) {
	for _, p := range problems {
		l.addProblem(d, path, p, "")
	}
}

// addProblem adds a problem of the expression at path. Its position is exact if the YAML
// contains the expression verbatim. Otherwise the finding has the position of the value, and
// its message the position within the expression.
func (l *linter) addProblem(d *document, path string, p promql.Problem, rule string) {
	node := d.find(path)
	if node == nil {
		at := d.nearest(path)
		l.addAt(d, at.Line, at.Column, path, p.Message, rule)
		return
	}
	lineNumber, columnNumber, exact := d.positionIn(node, p.Pos)
	message := p.Message
	if !exact {
		message = "at " + p.Pos.String() + " of the expression: " + message
	}
	l.addAt(d, lineNumber, columnNumber, path, message, rule)
}

// ignoreComment is the comment that turns off rules for one query.
var ignoreComment = regexp.MustCompile(`#\s*lint:ignore\s+([a-z, -]+)`)

// ignoredRules returns the rules that comments turn off for the value at path: in the line
// before its key, and in all lines of the value.
func (d *document) ignoredRules(path string) []string {
	value, rest, key := walkPath(d.root, path)
	if rest != "" || key == nil {
		return nil
	}
	first := max(key.Line-2, 0)
	last := min(value.Line+strings.Count(value.Value, "\n"), len(d.lines))
	var rules []string
	for _, source := range d.lines[first:last] {
		for _, m := range ignoreComment.FindAllStringSubmatch(source, -1) {
			rules = append(rules, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
		}
	}
	return rules
}

// positionIn returns the position in the file of a position in the text of a scalar.
// exact is false if the YAML does not contain the text verbatim.
func (d *document) positionIn(n *yaml.Node, pos promql.Position) (lineNumber, columnNumber int, exact bool) {
	switch {
	case n.Style&yaml.LiteralStyle != 0:
		lineNumber = n.Line + pos.Line
		if lineNumber > len(d.lines) {
			return n.Line, n.Column, false
		}
		return lineNumber, d.indentation(n) + pos.Column, true
	case n.Style&yaml.FoldedStyle != 0 || pos.Line > 1:
		return n.Line, n.Column, false
	}
	source := d.lines[n.Line-1]
	start := n.Column - 1
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		start++
	}
	if start > len(source) || !strings.HasPrefix(source[start:], n.Value) {
		return n.Line, n.Column, false // the scalar has escapes or spans several lines
	}
	return n.Line, start + pos.Column, true
}

// indentation returns the number of spaces before the first non-empty line of a literal.
func (d *document) indentation(n *yaml.Node) int {
	for _, source := range d.lines[min(n.Line, len(d.lines)):] {
		if trimmed := strings.TrimLeft(source, " "); trimmed != "" {
			return len(source) - len(trimmed)
		}
	}
	return 0
}

package cli

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"plimsoll.dev/plimsoll/operator/internal/promql"
)

// find the value at a path such as spec.scores[0].query; nil when there is none.
func (d *document) find(path string) *yaml.Node {
	if n, rest, _ := walk(d.root, path); rest == "" {
		return n
	}
	return nil
}

// nearest is where a path stands: its key, or the innermost of its parents that exists.
func (d *document) nearest(path string) *yaml.Node {
	value, rest, key := walk(d.root, path)
	if rest == "" && key != nil {
		return key
	}
	return value
}

// walk as far down the path as there are nodes. key is the key of the last step
// into a mapping, rest the steps that were not found.
func walk(n *yaml.Node, path string) (value *yaml.Node, rest string, key *yaml.Node) {
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

// cutStep of "scores[0].query" is "scores", of "[0].query" it is "[0]".
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

// problems of an expression that stands at a path. Their place in the file is told
// where the YAML leaves the expression as it is, else that of the value.
func (l *linter) problems(d *document, path string, problems []promql.Problem) {
	node := d.find(path)
	for _, p := range problems {
		if node == nil {
			l.add(d, path, "%s", p.Message)
			continue
		}
		line, column, exact := d.within(node, p.Pos)
		message := p.Message
		if !exact {
			message = "at " + p.Pos.String() + " of the expression: " + message
		}
		l.addAt(d, line, column, path, message)
	}
}

// within is the place in the file of a position in a scalar.
func (d *document) within(n *yaml.Node, pos promql.Position) (line, column int, exact bool) {
	switch {
	case n.Style&yaml.LiteralStyle != 0:
		line = n.Line + pos.Line
		if line > len(d.lines) {
			return n.Line, n.Column, false
		}
		return line, d.indent(n) + pos.Column, true
	case n.Style&yaml.FoldedStyle != 0 || pos.Line > 1:
		return n.Line, n.Column, false
	}
	source := d.lines[n.Line-1]
	start := n.Column - 1
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		start++
	}
	if start > len(source) || !strings.HasPrefix(source[start:], n.Value) {
		return n.Line, n.Column, false // escapes, or a scalar over several lines
	}
	return n.Line, start + pos.Column, true
}

// indent of a literal's lines: that of its first line that is not empty.
func (d *document) indent(n *yaml.Node) int {
	for _, source := range d.lines[min(n.Line, len(d.lines)):] {
		if trimmed := strings.TrimLeft(source, " "); trimmed != "" {
			return len(source) - len(trimmed)
		}
	}
	return 0
}

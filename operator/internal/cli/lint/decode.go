package lint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/manifest"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// linter collects the findings in a set of files.
type linter struct {
	files        []string
	clusterLabel string // of sources that are not in the files; empty for the default
	checked      int
	objects      []decodedObject
	policies     map[string]*v1alpha1.ScoringPolicy
	sources      map[string]*v1alpha1.MetricsSource
	findings     []finding
}

// decodedObject is an object and the document that it was decoded from.
type decodedObject struct {
	runtime.Object
	doc *document
}

// document is one YAML document of a file.
type document struct {
	file   string
	root   *yaml.Node
	lines  []string // of the whole file
	object string   // kind and name
}

// yamlSyntaxError matches an error of the YAML parser, which reports the position only in its message.
var yamlSyntaxError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// readFile decodes all documents of a file.
func (l *linter) readFile(name string, content []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		root := &yaml.Node{}
		err := decoder.Decode(root)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			l.findings = append(l.findings, syntaxFinding(name, err))
			return nil
		}
		if len(root.Content) == 1 {
			if err := l.readDocument(&document{file: name, root: root.Content[0], lines: strings.Split(string(content), "\n")}); err != nil {
				return err
			}
		}
	}
}

// syntaxFinding converts an error of the YAML parser. An error without a position is
// reported in the first line.
func syntaxFinding(file string, err error) finding {
	lineNumber, message := 1, err.Error()
	if m := yamlSyntaxError.FindStringSubmatch(message); m != nil {
		message = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			lineNumber = max(n, 1)
		}
	}
	return finding{File: file, LineNumber: lineNumber, ColumnNumber: 1, Message: message}
}

// readDocument validates a document by its CRD and decodes it strictly. Each item of a list is a
// document. Documents of other API groups are ignored. An error means that the CRDs are broken.
func (l *linter) readDocument(d *document) error {
	apiVersion, kind := nodeText(d.find("apiVersion")), nodeText(d.find("kind"))
	if manifest.IsList(apiVersion, kind) {
		for _, item := range d.items() {
			if err := l.readDocument(&document{file: d.file, root: item, lines: d.lines}); err != nil {
				return err
			}
		}
		return nil
	}
	if !isOurs(apiVersion, kind) {
		return nil
	}
	l.checked++
	d.object = strings.TrimSpace(kind + " " + nodeText(d.find("metadata.name")))
	if path, message := manifest.ExplainUnknownType(apiVersion, kind); path != "" {
		l.add(d, path, "%s", message)
		return nil
	}
	l.checkRepeatedKeys(d, d.root, "")
	content, err := yaml.Marshal(d.root)
	if err != nil {
		l.add(d, "", "%s", err)
		return nil
	}
	refused, err := l.checkSchema(d, content)
	if err != nil {
		return err
	}
	object, _, err := serializer.NewCodecFactory(hubclient.Scheme, serializer.EnableStrict).UniversalDeserializer().Decode(content, nil, nil)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		if !refused { // else the findings of the schema say more
			path, message := manifest.ExplainDecodeError(err)
			l.add(d, path, "%s", message)
		}
		return nil
	}
	if err != nil && !refused { // else the schema names them
		for _, m := range manifest.StrictError.FindAllStringSubmatch(err.Error(), -1) {
			l.add(d, m[1], "unknown field")
		}
	}
	switch name := nodeText(d.find("metadata.name")); {
	case name == "":
		l.add(d, "metadata", "must have a name")
	case validation.IsDNS1123Subdomain(name) != nil:
		l.add(d, "metadata.name", "must have lower case letters, digits, hyphens and dots only, and begin and end with a letter or digit")
	}
	l.checkRepeatedObject(d)
	l.objects = append(l.objects, decodedObject{object, d})
	switch o := object.(type) {
	case *v1alpha1.MetricsSource:
		l.sources[o.Name] = o
	case *v1alpha1.ScoringPolicy:
		l.policies[o.Name] = o
	}
	return nil
}

// isOurs reports whether a document is meant to be an object of plimsoll.dev, maybe with a misspelt or forgotten group.
func isOurs(apiVersion, kind string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	if group == v1alpha1.GroupVersion.Group {
		return true
	}
	isForgotten := group == "" || apiVersion == v1alpha1.GroupVersion.Version
	isMisspelt := strings.Contains(group, "plimsoll") || format.Distance(group, v1alpha1.GroupVersion.Group) <= 3
	return hubclient.Scheme.Recognizes(v1alpha1.GroupVersion.WithKind(kind)) && (isForgotten || isMisspelt)
}

// checkRepeatedKeys reports fields that occur twice in a mapping, of which a parser would keep one.
func (l *linter) checkRepeatedKeys(d *document, n *yaml.Node, path string) {
	switch n.Kind { //nolint:exhaustive // the others have no fields
	case yaml.SequenceNode:
		for i, item := range n.Content {
			l.checkRepeatedKeys(d, item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.MappingNode:
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			at := strings.TrimPrefix(path+"."+key.Value, ".")
			if seen[key.Value] {
				l.addAt(d, key.Line, key.Column, at, "duplicate field", "")
			}
			seen[key.Value] = true
			l.checkRepeatedKeys(d, n.Content[i+1], at)
		}
	}
}

// checkRepeatedObject reports an object whose name another one of the file has.
func (l *linter) checkRepeatedObject(d *document) {
	isSame := func(other decodedObject, path string) bool {
		return nodeText(other.doc.find(path)) == nodeText(d.find(path))
	}
	for _, other := range l.objects {
		if other.doc.file == d.file && other.doc.object == d.object && isSame(other, "metadata.namespace") && nodeText(d.find("metadata.name")) != "" {
			l.add(d, "metadata.name", "the file has another %s, in line %d: only the last one would be kept", d.object, other.doc.root.Line)
			return
		}
	}
}

// checkSchema reports what the schema and the rules of the CRD refuse, and whether there is
// anything.
func (l *linter) checkSchema(d *document, content []byte) (refused bool, err error) {
	problems, err := manifest.ValidateSchema(content)
	for _, p := range problems {
		l.add(d, p.Path, "%s", p.Message)
	}
	return len(problems) > 0, err
}

// checkObject checks what no schema can.
func (l *linter) checkObject(o decodedObject) {
	switch object := o.Object.(type) {
	case *v1alpha1.MetricsSource:
		l.checkSource(o.doc, object)
	case *v1alpha1.ScoringPolicy:
		l.checkPolicy(o.doc, object)
	case *v1alpha1.PlacementGate:
		l.checkGate(o.doc, object)
	case *v1alpha1.CapacityPolicy:
		l.checkCapacityPolicy(o.doc, object)
	case *v1alpha1.ReclaimPolicy:
		l.checkReclaimPolicy(o.doc, object)
	case *v1alpha1.TrialPolicy:
		l.checkTrialPolicy(o.doc, object)
	}
}

// add adds a finding about the field at path.
func (l *linter) add(d *document, path, format string, args ...any) {
	at := d.nearest(path)
	l.addAt(d, at.Line, at.Column, path, fmt.Sprintf(format, args...), "")
}

func (l *linter) addAt(d *document, lineNumber, columnNumber int, path, message, rule string) {
	l.findings = append(l.findings, finding{File: d.file, LineNumber: lineNumber, ColumnNumber: columnNumber, Object: d.object, Path: path, Message: message, Rule: rule})
}

// nodeText returns the text of a scalar, or "" for nil.
func nodeText(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	return n.Value
}

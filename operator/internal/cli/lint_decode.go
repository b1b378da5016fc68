package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// linter gathers what is wrong with the objects of some files.
type linter struct {
	found    []finding
	checked  int
	policies map[string]*v1alpha1.ScoringPolicy
	gates    []gateIn
}

// gateIn is a gate and where it was read.
type gateIn struct {
	gate *v1alpha1.PlacementGate
	doc  *document
}

// document is one YAML document of a file.
type document struct {
	file   string
	root   *yaml.Node
	lines  []string // of the file
	object string   // kind and name
}

// expand folders into the files that they hold.
func expand(names []string) ([]string, error) {
	var files []string
	for _, name := range names {
		if name == "-" {
			files = append(files, name)
			continue
		}
		err := filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			if path == name || slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path)) {
				files = append(files, filepath.ToSlash(path))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func (l *linter) file(name string, content []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		root := &yaml.Node{}
		err := decoder.Decode(root)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			at, message := 1, err.Error()
			if m := yamlLine.FindStringSubmatch(message); m != nil {
				message = m[2]
				at, _ = strconv.Atoi("0" + m[1]) // no line given is line 0
			}
			l.found = append(l.found, finding{File: name, Line: max(at, 1), Column: 1, Message: message})
			return
		}
		if len(root.Content) == 1 {
			l.document(&document{file: name, root: root.Content[0], lines: strings.Split(string(content), "\n")})
		}
	}
}

var strictField = regexp.MustCompile(`(unknown|duplicate) field "([^"]+)"`)

// document is decoded strictly, and checked if it is one of ours.
func (l *linter) document(d *document) {
	apiVersion, kind := text(d.find("apiVersion")), text(d.find("kind"))
	group, _, _ := strings.Cut(apiVersion, "/")
	if group != v1alpha1.GroupVersion.Group {
		return
	}
	l.checked++
	d.object = strings.TrimSpace(kind + " " + text(d.find("metadata.name")))
	content, err := yaml.Marshal(d.root)
	if err != nil {
		l.add(d, "", "%s", err)
		return
	}
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(content, nil, nil)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		path, message := undecodable(err)
		l.add(d, path, "%s", message)
		return
	}
	if err != nil {
		for _, m := range strictField.FindAllStringSubmatch(err.Error(), -1) {
			l.add(d, m[2], "%s field", m[1])
		}
	}
	if text(d.find("metadata.name")) == "" {
		l.add(d, "metadata", "must have a name")
	}
	switch o := object.(type) {
	case *v1alpha1.MetricsSource:
		l.source(d, o)
	case *v1alpha1.ScoringPolicy:
		l.policies[o.Name] = o
		l.policy(d, o)
	case *v1alpha1.PlacementGate:
		l.gates = append(l.gates, gateIn{o, d})
		l.gate(d, o)
	}
}

var wrongType = regexp.MustCompile(`cannot unmarshal (\S+) into Go struct field [^.]+\.(\S+) of type (\S+)`)

// undecodable says where and why an object can't be read, without the decoder's own names.
func undecodable(err error) (path, message string) {
	if runtime.IsNotRegisteredError(err) {
		return "kind", "unknown kind: plimsoll.dev/v1alpha1 has MetricsSource, ScoringPolicy and PlacementGate"
	}
	if m := wrongType.FindStringSubmatch(err.Error()); m != nil {
		return m[2], "must be of type " + m[3] + ", not " + m[1]
	}
	return "", err.Error()
}

func (l *linter) add(d *document, path, format string, args ...any) {
	at := d.nearest(path)
	l.addAt(d, at.Line, at.Column, path, fmt.Sprintf(format, args...))
}

func (l *linter) addAt(d *document, line, column int, path, message string) {
	l.found = append(l.found, finding{File: d.file, Line: line, Column: column, Object: d.object, Path: path, Message: message})
}

func text(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	return n.Value
}

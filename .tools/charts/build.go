package charts

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// object is a manifest.
type object map[string]any

func (o object) kind() string { return o["kind"].(string) }
func (o object) name() string { return o["metadata"].(map[string]any)["name"].(string) }

// buildFolder builds a folder of config with components, as kubectl kustomize does.
func buildFolder(root, folder string, components ...string) ([]object, error) {
	config, err := filepath.Abs(filepath.Join(root, "config"))
	if err != nil {
		return nil, err
	}
	overlay, err := os.MkdirTemp("", "chart")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(overlay) }() // a folder in the temporary directory
	if overlay, err = filepath.EvalSymlinks(overlay); err != nil {
		return nil, err
	}
	base, err := filepath.Rel(overlay, config)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("resources: [%s/%s]\n", base, folder)
	for i, c := range components {
		if i == 0 {
			text += "components:\n"
		}
		text += fmt.Sprintf("- %s/%s\n", base, c)
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, r := range built.Resources() {
		m, err := r.Map()
		if err != nil {
			return nil, err
		}
		objects = append(objects, m)
	}
	return objects, nil
}

var (
	inlineMarker = regexp.MustCompile(`'?@@ (.+?) @@'?`)
	quotedInline = regexp.MustCompile(`'([^'\n]*@@ .+? @@[^'\n]*)'`)
	lineMarker   = regexp.MustCompile(`(?m)^( *)(?:- |[\w-]+: )?'?@@line (\w+)@@'?\n`)
)

// toTemplate writes an object as a template. blocks are the contents of line markers; their
// lines get the indentation of the marker.
func toTemplate(o object, blocks map[string]string) (string, error) {
	text, err := yaml.Marshal(o)
	if err != nil {
		return "", err
	}
	escaped := strings.NewReplacer("{{", `{{"{{"}}`, "}}", `{{"}}"}}`).Replace(string(text))
	missing := ""
	lined := lineMarker.ReplaceAllStringFunc(escaped, func(line string) string {
		m := lineMarker.FindStringSubmatch(line)
		block, ok := blocks[m[2]]
		if !ok {
			missing = m[2]
		}
		var b strings.Builder
		for l := range strings.Lines(block) {
			if !strings.HasPrefix(l, "{{") {
				l = m[1] + l
			}
			b.WriteString(l)
		}
		return b.String()
	})
	if missing != "" {
		return "", fmt.Errorf("no block %q", missing)
	}
	unquoted := quotedInline.ReplaceAllString(lined, "$1")
	return inlineMarker.ReplaceAllString(unquoted, "{{ $1 }}"), nil
}

// part is a group of objects that a condition includes.
type part struct {
	file      string // in templates
	condition string // expression; empty: always
	each      string // expression of a list; the objects are repeated for each item. Empty: once
	objects   []object
	// definition is the name of a template with the spec of the only object. The name of the object
	// ends with its hash. Empty: the name is that of the object.
	definition string
}

// toFile returns the text of a part.
func (p part) toFile(blocks map[string]string) (string, error) {
	if p.definition != "" {
		return p.toHashedFile(blocks)
	}
	var documents []string
	for _, o := range p.objects {
		text, err := toTemplate(o, blocks)
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", o.kind(), o.name(), err)
		}
		documents = append(documents, text)
	}
	text := strings.Join(documents, "---\n")
	if p.each != "" {
		text = "{{- range " + p.each + " }}\n---\n" + text + "{{- end }}\n"
	}
	if p.condition != "" {
		text = "{{- if " + p.condition + " }}\n" + text + "{{- end }}\n"
	}
	return header + text, nil
}

// header is the head of each template.
const header = "{{- /* Generated from the kustomize folders: make charts */ -}}\n"

// toHashedFile returns the text of a part with a definition. Helm keeps the object of the previous release,
// because clusters may still use it.
func (p part) toHashedFile(blocks map[string]string) (string, error) {
	spec, err := toTemplate(object{"spec": p.objects[0]["spec"]}, blocks)
	if err != nil {
		return "", err
	}
	named := maps.Clone(p.objects[0])
	delete(named, "spec")
	metadata := maps.Clone(named["metadata"].(map[string]any))
	metadata["name"], metadata["annotations"] = "@@line hashed@@", map[string]any{"keep": "@@line keep@@"}
	named["metadata"] = metadata
	blocks = maps.Clone(blocks)
	blocks["hashed"] = hashedName(p.objects[0].name(), fmt.Sprintf("%q", p.definition))
	head, err := toTemplate(named, blocks)
	if err != nil {
		return "", err
	}
	return header + fmt.Sprintf("{{- define %q }}\n%s{{- end }}\n{{- if %s }}\n%s{{- include %[1]q . }}\n{{- end }}\n", p.definition, spec, p.condition, head), nil
}

// hashedName returns the line with the name of an object and the hash of the template that an expression
// names.
func hashedName(name, definition string) string {
	return "name: " + name + "-{{ include " + definition + " . | sha256sum | trunc 8 }}\n"
}

// set sets a field at a path of keys. It fails if a parent does not exist.
func set(o map[string]any, value any, path ...string) error {
	for _, key := range path[:len(path)-1] {
		child, ok := o[key].(map[string]any)
		if !ok {
			return fmt.Errorf("no field %s", key)
		}
		o = child
	}
	o[path[len(path)-1]] = value
	return nil
}

// pod returns the pod spec of a Deployment or DaemonSet, and its first container.
func (o object) pod() (spec, container map[string]any) {
	spec = o["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	return spec, spec["containers"].([]any)[0].(map[string]any)
}

// without returns the objects that are not of the kind.
func without(objects []object, kind string) []object {
	var rest []object
	for _, o := range objects {
		if o.kind() != kind {
			rest = append(rest, o)
		}
	}
	return rest
}

// only returns the objects of the kind.
func only(objects []object, kind string) []object {
	var found []object
	for _, o := range objects {
		if o.kind() == kind {
			found = append(found, o)
		}
	}
	return found
}

// templateMonitors makes the labels of objects of prometheus-operator configurable.
func templateMonitors(objects []object) error {
	for _, o := range objects {
		if err := set(o, "@@line monitorLabels@@", "metadata", "labels"); err != nil {
			return fmt.Errorf("%s: %w", o.name(), err)
		}
	}
	return nil
}

// monitorLabelsValue is the setting of these labels.
func monitorLabelsValue(path string) value {
	return value{path, map[string]any{}, textMap, "Labels of these, for a Prometheus that selects by labels, as that of kube-prometheus-stack does: {release: NAME}."}
}

// monitorLabels returns the block of templateMonitors with the labels of a value.
func monitorLabels(value string) string {
	return "{{- with " + value + " }}\nlabels: {{ toJson . }}\n{{- end }}\n"
}

// kueueMonitorValues are the settings of the ServiceMonitor of Kueue.
func kueueMonitorValues(path string) []value {
	return []value{
		{path + ".enabled", true, boolean, "Also scrape Kueue. Let one release do it, if two are on one cluster."},
		{path + ".namespace", "kueue-system", objectName, "Namespace of Kueue. Without it, nothing is scraped."},
	}
}

// splitKueueMonitor returns the monitors and rules, and the ServiceMonitor of Kueue by itself, with the
// namespace of Kueue from a value.
func splitKueueMonitor(monitoring []object, namespace string) (rest, kueue []object, err error) {
	for _, o := range monitoring {
		if o.kind() != "ServiceMonitor" || !strings.HasSuffix(o.name(), "-kueue") {
			rest = append(rest, o)
			continue
		}
		kueue = append(kueue, o)
		if err := set(o, []any{"@@ " + namespace + " @@"}, "spec", "namespaceSelector", "matchNames"); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", o.name(), err)
		}
	}
	if len(kueue) != 1 {
		return nil, nil, fmt.Errorf("%d monitors of Kueue", len(kueue))
	}
	return rest, kueue, nil
}

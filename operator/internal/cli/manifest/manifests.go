// Package manifest reads the objects of Plimsoll from files, and says what an API server would refuse.
package manifest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/config/crd"
	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

// Manifests holds the objects of YAML files that a policy or a gate needs.
type Manifests struct {
	policies []*v1alpha1.ScoringPolicy
	Sources  map[string]*v1alpha1.MetricsSource
	Secrets  map[v1alpha1.SecretKeyReference]string
	// Gates have the defaults of the API server.
	Gates []*v1alpha1.PlacementGate
	// Others are the objects of other groups, in the order of the files.
	Others []*unstructured.Unstructured
}

// New returns Manifests without objects.
func New() *Manifests {
	return &Manifests{Sources: map[string]*v1alpha1.MetricsSource{}, Secrets: map[v1alpha1.SecretKeyReference]string{}}
}

// Read reads the objects of files and folders. Other kinds are ignored.
func Read(a *command.App, names []string) (*Manifests, error) {
	m := New()
	files, err := ExpandFolders(names)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := ReadFile(a, file)
		if err != nil {
			return nil, err
		}
		if err := m.AddFile(file, content); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// AddFile adds the objects of all documents of a file.
func (m *Manifests) AddFile(file string, content []byte) error {
	documents := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := m.addDocument(document); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
}

// addDocument adds an object, or the objects of a list.
func (m *Manifests) addDocument(document []byte) error {
	content, err := yaml.YAMLToJSON(document)
	if err != nil {
		return errors.New("invalid YAML: run lint for details") // err can quote a Secret
	}
	var kind metav1.TypeMeta
	if json.Unmarshal(content, &kind) != nil {
		return nil // no object, such as a patch
	}
	if IsList(kind.APIVersion, kind.Kind) {
		return m.addItems(document)
	}
	switch kind.APIVersion + " " + kind.Kind {
	case v1alpha1.GroupVersion.String() + " ScoringPolicy":
		policy, err := decodePolicy(document)
		m.policies = append(m.policies, policy)
		return err
	case v1alpha1.GroupVersion.String() + " MetricsSource":
		src := &v1alpha1.MetricsSource{}
		err := decodeValid(document, src)
		m.Sources[src.Name] = src
		return err
	case v1alpha1.GroupVersion.String() + " PlacementGate":
		g, err := decodeGate(document)
		m.Gates = append(m.Gates, g)
		return err
	case "v1 Secret":
		secret := &corev1.Secret{}
		if err := yaml.Unmarshal(document, secret); err != nil {
			return errors.New("invalid Secret: the values of data must be base64") // err can quote the value
		}
		for key, value := range secret.Data {
			m.Secrets[v1alpha1.SecretKeyReference{Name: secret.Name, Key: key}] = string(value)
		}
		for key, value := range secret.StringData {
			m.Secrets[v1alpha1.SecretKeyReference{Name: secret.Name, Key: key}] = value
		}
	default:
		if group, _, _ := strings.Cut(kind.APIVersion, "/"); group != v1alpha1.GroupVersion.Group {
			return m.addOther(content)
		}
		if path, message := ExplainUnknownType(kind.APIVersion, kind.Kind); path != "" {
			return fmt.Errorf("%s: %s", path, message)
		}
	}
	return nil
}

// addOther adds an object of another group. What is none, such as a patch, is left out.
func (m *Manifests) addOther(content []byte) error {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err == nil {
		m.Others = append(m.Others, object)
	}
	return nil
}

// addItems adds the objects of a list.
func (m *Manifests) addItems(document []byte) error {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := yaml.Unmarshal(document, &list); err != nil {
		return errors.New("invalid list: items must be a list of objects") // err can quote a Secret
	}
	for i, item := range list.Items {
		if err := m.addDocument(item); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

// Policies are the ScoringPolicies of the files.
func (m *Manifests) Policies() []*v1alpha1.ScoringPolicy { return m.policies }

// OnlyPolicy returns the policy of the files. It is an error if there is none, or if there are several.
func (m *Manifests) OnlyPolicy(files ...string) (*v1alpha1.ScoringPolicy, error) {
	if len(m.policies) != 1 {
		return nil, fmt.Errorf("%s: must contain one ScoringPolicy, got %d", strings.Join(files, ", "), len(m.policies))
	}
	return m.policies[0], nil
}

// OnlyGate returns the gate of the files. It is an error if there is none, or if there are several.
func (m *Manifests) OnlyGate(files ...string) (*v1alpha1.PlacementGate, error) {
	if len(m.Gates) != 1 {
		return nil, fmt.Errorf("%s: must contain one PlacementGate, got %d", strings.Join(files, ", "), len(m.Gates))
	}
	return m.Gates[0], nil
}

// decodePolicy decodes one ScoringPolicy, which must have scores.
func decodePolicy(document []byte) (*v1alpha1.ScoringPolicy, error) {
	policy := &v1alpha1.ScoringPolicy{}
	if err := decodeValid(document, policy); err != nil {
		return nil, err
	}
	if policy.Kind != "ScoringPolicy" || len(policy.Spec.Scores) == 0 {
		return nil, errors.New("must contain one ScoringPolicy with scores")
	}
	return policy, nil
}

// decodeGate decodes a PlacementGate.
func decodeGate(document []byte) (*v1alpha1.PlacementGate, error) {
	if err := decodeValid(document, &v1alpha1.PlacementGate{}); err != nil {
		return nil, err
	}
	content, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err != nil { // which keeps integers, unlike yaml.Unmarshal
		return nil, err
	}
	return DefaultGate(object)
}

// DefaultGate returns a valid PlacementGate with the defaults of the API server.
func DefaultGate(object *unstructured.Unstructured) (*v1alpha1.PlacementGate, error) {
	problems, err := crd.Validate(context.Background(), object) // sets the defaults
	if err == nil {
		err = problems.ToAggregate()
	}
	g := &v1alpha1.PlacementGate{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, g)
	}
	return g, err
}

// decodeValid decodes an object that an API server would accept. The error lists what it
// would refuse.
func decodeValid(document []byte, object runtime.Object) error {
	problems, err := ValidateSchema(document)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		var errs []error
		for _, p := range problems {
			errs = append(errs, fmt.Errorf("%s: %s", p.Path, p.Message))
		}
		return errors.Join(errs...)
	}
	err = yaml.UnmarshalStrict(document, object)
	if err == nil {
		return nil
	}
	if path, message := ExplainDecodeError(err); path != "" {
		return fmt.Errorf("%s: %s", path, message)
	}
	if m := repeatedKey.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s: duplicate field", m[1])
	}
	// Only this decoder reports the path of an unknown field.
	_, _, strict := serializer.NewCodecFactory(hubclient.Scheme, serializer.EnableStrict).UniversalDeserializer().Decode(document, nil, nil)
	if !runtime.IsStrictDecodingError(strict) {
		return err
	}
	var errs []error
	for _, m := range StrictError.FindAllStringSubmatch(strict.Error(), -1) {
		errs = append(errs, fmt.Errorf("%s: unknown field", m[1]))
	}
	if errs == nil {
		return err
	}
	return errors.Join(errs...)
}

// ExpandFolders replaces folders by the .yaml and .yml files in them, recursively.
func ExpandFolders(names []string) ([]string, error) {
	var files []string
	for _, name := range names {
		if name == stdinName {
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

// stdinName is the file name of standard input.
const stdinName = "-"

// ReadFile returns the content of a file or of standard input.
func ReadFile(a *command.App, file string) ([]byte, error) {
	if file == stdinName {
		return io.ReadAll(a.In)
	}
	return os.ReadFile(file)
}

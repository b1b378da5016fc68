package contract

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// filledIn replaces the places of a format.
var filledIn = strings.NewReplacer("%d", "1", "%s", "x", "%q", "x")

// Each manifest of our API that stands in the code of the lab or of a fleet test has only fields that the API
// has. The API server of a fleet would say so half an hour later.
func TestFieldsOfManifestsInCode(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	manifests := 0
	err := filepath.WalkDir(filepath.Join(root, "test"), func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, _ := strconv.Unquote(literal.Value)
			for _, document := range strings.Split(text, "\n---\n") {
				if !strings.HasPrefix(strings.TrimSpace(document), "apiVersion: "+v1alpha1.GroupVersion.Group) {
					continue
				}
				manifests++
				content, err := yaml.YAMLToJSON([]byte(filledIn.Replace(document)))
				if err == nil {
					_, _, err = decoder.Decode(content, nil, nil)
				}
				if err != nil {
					t.Errorf("%s: %v", files.Position(literal.Pos()), err)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if manifests == 0 {
		t.Error("no manifest was found")
	}
}

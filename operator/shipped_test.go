package operator_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// notShipped are modules that the programs must not contain: test libraries, and SDKs of
// clouds.
var notShipped = []string{
	"github.com/stretchr/testify", "go.uber.org/goleak", "github.com/onsi/gomega", "github.com/onsi/ginkgo", "github.com/google/go-cmp",
	"cloud.google.com/", "google.golang.org/api", "github.com/Azure/", "github.com/AzureAD/", "github.com/aws/",
	"helm.sh/",
}

func TestProgramsContainNoTestOrCloudLibraries(t *testing.T) {
	readSources(t)
	for _, program := range []string{"./operator/cmd/plimsoll-operator", "./operator/cmd/kubectl-plimsoll", "./exporter/cmd/plimsoll-exporter"} {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", program)
		cmd.Dir = ".."
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		modules := strings.Fields(string(out))
		slices.Sort(modules)
		for _, m := range slices.Compact(modules) {
			if slices.ContainsFunc(notShipped, func(prefix string) bool {
				return m == prefix || strings.HasPrefix(m, prefix) && strings.HasSuffix(prefix, "/")
			}) {
				t.Errorf("%s contains %s", program, m)
			}
		}
	}
}

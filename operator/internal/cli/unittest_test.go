package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
)

func TestSampleTestsPass(t *testing.T) {
	files, err := filepath.Glob("../../../config/samples/tests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests among the samples: %v", err)
	}
	var out, errOut bytes.Buffer
	code := Main(context.Background(), append([]string{"test"}, files...), strings.NewReader(""), &out, &errOut)
	if code != exitDone || strings.Count(out.String(), "ok ") < len(files) {
		t.Errorf("exit code %d\n%s%s", code, &out, &errOut)
	}
}

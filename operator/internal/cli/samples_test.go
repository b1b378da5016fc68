package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

const samples = "../../../config/samples"

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(samples, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s among the samples: %v", pattern, err)
	}
	return files
}

func TestSampleTestsPass(t *testing.T) {
	files := glob(t, "tests/*.yaml")
	var out, errOut bytes.Buffer
	code := Main(context.Background(), append([]string{"test"}, files...), strings.NewReader(""), &out, &errOut)
	if code != exitOK || strings.Count(out.String(), "ok ") < len(files) {
		t.Errorf("exit code %d\n%s%s", code, &out, &errOut)
	}
}

// commentedPolicy matches a file that begins with two lines of comment.
var commentedPolicy = regexp.MustCompile(`^(# .+\n){2}apiVersion:`)

func TestSamplePoliciesHaveCommentsAndTests(t *testing.T) {
	tested := map[string]bool{}
	for _, file := range glob(t, "tests/*.yaml") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f testFile
		if err := yaml.Unmarshal(content, &f); err != nil {
			t.Fatal(err)
		}
		tested[filepath.Join(samples, "tests", f.Policy)] = true
	}
	for _, file := range glob(t, "policies/*.yaml") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !commentedPolicy.Match(content) {
			t.Errorf("%s must begin with two lines of comment", file)
		}
		if !tested[file] {
			t.Errorf("no file in config/samples/tests tests %s", file)
		}
	}
}

// policyChanges returns functions that change a policy, by the name of the change.
func policyChanges(spec *v1alpha1.ScoringPolicySpec) map[string]func(*v1alpha1.ScoringPolicySpec) {
	all := map[string]func(*v1alpha1.ScoringPolicySpec){}
	if spec.Freshness != nil {
		all["freshness"] = func(s *v1alpha1.ScoringPolicySpec) { s.Freshness = nil }
		all["freshness.maxAgeSeconds"] = func(s *v1alpha1.ScoringPolicySpec) { s.Freshness.MaxAgeSeconds = 86400 }
	}
	for i := range spec.Scores {
		original := &spec.Scores[i]
		add := func(name string, change func(*v1alpha1.ScoreSpec)) {
			all[original.Name+"'s "+name] = func(s *v1alpha1.ScoringPolicySpec) { change(&s.Scores[i]) }
		}
		add("query", func(s *v1alpha1.ScoreSpec) { s.Query = fmt.Sprintf("-0.9 * (%s)", s.Query) })
		add("query by a tenth", func(s *v1alpha1.ScoreSpec) {
			if s.Normalize.Fleet != nil {
				s.Query = fmt.Sprintf("(%s) ^ 2", s.Query)
				return
			}
			s.Query = fmt.Sprintf("1.1 * (%s)", s.Query)
		})
		if original.Normalize.Linear != nil {
			add("from", func(s *v1alpha1.ScoreSpec) { s.Normalize.Linear.From = nearFrom(s.Normalize.Linear) })
			add("to", func(s *v1alpha1.ScoreSpec) { s.Normalize.Linear.To = nearFrom(s.Normalize.Linear) })
		}
		if original.Normalize.Fleet != nil {
			add("order", func(s *v1alpha1.ScoreSpec) { s.Normalize.Fleet.Descending = !s.Normalize.Fleet.Descending })
		}
		if original.Minimum != nil {
			add("veto", func(s *v1alpha1.ScoreSpec) { s.Minimum = nil })
		}
		if hasOtherScores := slices.ContainsFunc(spec.Scores, func(s v1alpha1.ScoreSpec) bool { return s.Name != original.Name && (s.Weight == nil || *s.Weight > 0) }); spec.Total != nil && hasOtherScores {
			add("weight", func(s *v1alpha1.ScoreSpec) { w := int32(7); s.Weight = &w })
		}
		add("range", func(s *v1alpha1.ScoreSpec) {
			s.Range = map[v1alpha1.ScoreRange]v1alpha1.ScoreRange{"": v1alpha1.RangeFull, v1alpha1.RangeFull: ""}[s.Range]
		})
	}
	return all
}

// nearFrom returns the value a tenth of the way between from and to.
func nearFrom(l *v1alpha1.Linear) resource.Quantity {
	from, to := l.From.AsApproximateFloat64(), l.To.AsApproximateFloat64()
	return resource.MustParse(fmt.Sprintf("%.6f", from+(to-from)/10))
}

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
	if code != exitDone || strings.Count(out.String(), "ok ") < len(files) {
		t.Errorf("exit code %d\n%s%s", code, &out, &errOut)
	}
}

var explained = regexp.MustCompile(`^(# .+\n){2}apiVersion:`)

func TestSamplePoliciesAreExplainedAndTested(t *testing.T) {
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
		if !explained.Match(content) {
			t.Errorf("%s must begin with two lines of comment", file)
		}
		if !tested[file] {
			t.Errorf("no file in config/samples/tests tests %s", file)
		}
	}
}

// A change of any score's query, normalization, veto or weight, or of freshness, must
// not go unnoticed by the policy's tests.
func TestSampleTestsNoticeChanges(t *testing.T) {
	a := &app{}
	for _, file := range glob(t, "tests/*.yaml") {
		tests, policy, rules, err := a.readTests(file)
		if err != nil {
			t.Fatal(err)
		}
		for what, change := range changes(&policy.Spec) {
			spec := policy.Spec.DeepCopy()
			change(spec)
			noticed := false
			for i := range tests {
				differ, err := tests[i].run(context.Background(), spec, rules, "cluster")
				noticed = noticed || err != nil || len(differ) > 0
			}
			if !noticed {
				t.Errorf("%s does not notice %s", file, what)
			}
		}
	}
}

func changes(spec *v1alpha1.ScoringPolicySpec) map[string]func(*v1alpha1.ScoringPolicySpec) {
	all := map[string]func(*v1alpha1.ScoringPolicySpec){}
	if spec.Freshness != nil {
		all["the end of freshness"] = func(s *v1alpha1.ScoringPolicySpec) { s.Freshness = nil }
		all["another age"] = func(s *v1alpha1.ScoringPolicySpec) { s.Freshness.MaxAgeSeconds = 86400 }
	}
	for i := range spec.Scores {
		was := &spec.Scores[i]
		add := func(what string, change func(*v1alpha1.ScoreSpec)) {
			all[was.Name+"'s "+what] = func(s *v1alpha1.ScoringPolicySpec) { change(&s.Scores[i]) }
		}
		add("query", func(s *v1alpha1.ScoreSpec) { s.Query = fmt.Sprintf("-0.9 * (%s)", s.Query) })
		add("query by a tenth", func(s *v1alpha1.ScoreSpec) {
			if s.Normalize.Fleet != nil {
				s.Query = fmt.Sprintf("(%s) ^ 2", s.Query)
				return
			}
			s.Query = fmt.Sprintf("1.1 * (%s)", s.Query)
		})
		if was.Normalize.Linear != nil {
			add("from", func(s *v1alpha1.ScoreSpec) { s.Normalize.Linear.From = between(s.Normalize.Linear) })
			add("to", func(s *v1alpha1.ScoreSpec) { s.Normalize.Linear.To = between(s.Normalize.Linear) })
		}
		if was.Normalize.Fleet != nil {
			add("order", func(s *v1alpha1.ScoreSpec) { s.Normalize.Fleet.Descending = !s.Normalize.Fleet.Descending })
		}
		if was.Minimum != nil {
			add("veto", func(s *v1alpha1.ScoreSpec) { s.Minimum = nil })
		}
		if others := slices.ContainsFunc(spec.Scores, func(s v1alpha1.ScoreSpec) bool { return s.Name != was.Name && (s.Weight == nil || *s.Weight > 0) }); spec.Total != nil && others {
			add("weight", func(s *v1alpha1.ScoreSpec) { w := int32(7); s.Weight = &w })
		}
		add("range", func(s *v1alpha1.ScoreSpec) {
			s.Range = map[v1alpha1.ScoreRange]v1alpha1.ScoreRange{"": v1alpha1.RangeFull, v1alpha1.RangeFull: ""}[s.Range]
		})
	}
	return all
}

// between is a tenth of the way from one end to the other.
func between(l *v1alpha1.Linear) resource.Quantity {
	from, to := l.From.AsApproximateFloat64(), l.To.AsApproximateFloat64()
	return resource.MustParse(fmt.Sprintf("%.6f", from+(to-from)/10))
}

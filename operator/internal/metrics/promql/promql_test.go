package promql

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

func TestCheckReportsThePosition(t *testing.T) {
	for _, tc := range []struct{ name, expr, want string }{
		{"valid", `sum by (cluster) (up)`, ""},
		{"scalar", `time() - 5`, ""},
		{"unclosed", `sum by (cluster) (up`, "1:21: unclosed left parenthesis"},
		{"second line", "sum by (cluster) (\n  rate(up)\n)", "2:8: expected type range vector in call to function \"rate\", got instant vector"},
		{"unknown function", `summ(up)`, `1:1: unknown function with name "summ"`},
		{"range vector", `up[5m]`, "1:1: must be an instant vector, but is a range vector"},
		{"string", `"up"`, "1:1: must be an instant vector, but is a string"},
		{"empty", ``, "1:1: no expression found in input"},
		{"characters, not bytes", `"ü" + up[`, "1:10: unexpected end of input in duration expression"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Strings(Check(tc.expr))
			if got != tc.want {
				t.Errorf("Check(%q)\n got %q\nwant %q", tc.expr, got, tc.want)
			}
		})
	}
}

var testVars = []string{"model", "devices_per_pod", "namespace", "node_*"}

func TestParseTemplate(t *testing.T) {
	for _, tc := range []struct{ name, expr, want string }{
		{"label and number", `sum by (cluster) (floor(free{model="$model"} / $devices_per_pod))`, ""},
		{"signed number", `up * -$devices_per_pod`, ""},
		{"group of label_replace", `label_replace(up, "a", "$first", "b", "(?P<first>.*)")`, ""},
		{"anchor in a regex", `up{a=~"x$|y$"}`, ""},
		{"comment", "up # $nothing", ""},
		{"variable with an allowed prefix", `up{zone="$node_zone"} > $node_cost`, ""},
		{"an allowed prefix alone", `up{zone="$node_"}`, "1:10: unknown variable $node_"},
		{"part of a label, with an allowed prefix", `up{zone="z-$node_zone"}`, "1:12: $node_zone must be a whole label value"},
		{"unknown in a label", `up{a="$modle"}`, "1:7: unknown variable $modle; known variables are $cluster_label $devices_per_pod $model $namespace $node_*"},
		{"unknown number", `up > $x`, "1:6: unknown variable $x"},
		{"part of a label", `up{a="x-$model"}`, "1:9: $model must be a whole label value or a number"},
		{"part of a name", `free_$model`, "1:6: $model must be a whole label value"},
		{"part of a number", `up > 1$devices_per_pod`, "1:7: $devices_per_pod must be a whole label value"},
		{"fraction", `up > $devices_per_pod.5`, "1:6: $devices_per_pod must be a whole label value"},
		{"window", `rate(up[$devices_per_pod])`, "1:9: $devices_per_pod must be a whole label value"},
		{"offset", `up offset $devices_per_pod`, "1:11: $devices_per_pod must be a whole label value"},
		{"string argument", `label_replace(up, "a", "$model", "b", ".*")`, "1:25: $model must be a whole label value"},
		{"syntax", `up{a="$model"`, "1:14: unexpected end of input"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, problems := ParseTemplate(tc.expr, testVars)
			got := Strings(problems)
			if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
				t.Errorf("ParseTemplate(%q)\n got %q\nwant %q", tc.expr, got, tc.want)
			}
		})
	}
}

func TestRender(t *testing.T) {
	for _, tc := range []struct {
		name, expr string
		facts      map[string]string
		want, err  string
	}{
		{"label and number", `floor(free{model="$model"} / $devices_per_pod)`,
			map[string]string{"model": "NVIDIA-H100", "devices_per_pod": "8"},
			`floor(free{model="NVIDIA-H100"} / 8)`, ""},
		{"twice", `up{model="$model"} + on () down{model!="$model"}`, map[string]string{"model": "a"},
			`up{model="a"} + on () down{model!="a"}`, ""},
		{"absent label", `up{model="$model"}`, nil, `up{model=~".+"}`, ""},
		{"empty label", `up{model="$model"}`, map[string]string{"model": ""}, `up{model=~".+"}`, ""},
		{"absent number", `up > $devices_per_pod`, nil, "", "$devices_per_pod must be a number, but the workload has no value for it"},
		{"not a number", `up > $devices_per_pod`, map[string]string{"devices_per_pod": "1 or vector(1)"}, "",
			`$devices_per_pod must be a number, but the workload has "1 or vector(1)"`},
		{"infinite", `up > $devices_per_pod`, map[string]string{"devices_per_pod": "Inf"}, "", "must be a number"},
		{"signed", `up * -$devices_per_pod`, map[string]string{"devices_per_pod": "8"}, `up * -8`, ""},
		{"regex is quoted", `up{model=~"$model"}`, map[string]string{"model": "a.*"}, `up{model=~"a\\.\\*"}`, ""},
		{"a fact that looks like a variable", `up{model="$model",ns="$namespace"}`,
			map[string]string{"model": "$namespace", "namespace": "x"}, `up{model="$namespace",ns="x"}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tmpl, problems := ParseTemplate(tc.expr, testVars)
			if problems != nil {
				t.Fatal(Strings(problems))
			}
			got, err := tmpl.Render(tc.facts)
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}

// hostile are values that a tenant can choose. Each must stay one label value.
var hostile = []string{
	`a"} or vector(1) #`, "a'} or vector(1) #", "a`} or vector(1)", `\"`, "\\", "a\nb", `$model`, `.*`, `",b=~".*`, "\x00", "ü",
}

func TestRenderKeepsHostileFactsInOneMatcher(t *testing.T) {
	tmpl, problems := ParseTemplate(`sum(up{namespace="$namespace"})`, testVars)
	if problems != nil {
		t.Fatal(Strings(problems))
	}
	for _, fact := range hostile {
		assertOneMatcher(t, tmpl, fact)
	}
}

// FuzzCheck checks that problems have a position within the text, and that the printed
// form of a valid expression is valid.
func FuzzCheck(f *testing.F) {
	for _, expr := range []string{"up", "sum by (cluster) (rate(x[5m]))", "sum(", "1 +", "x{a=\"b\"} @ end()", "\xff", "ä", "x[5m]", "count by (c) ({__name__=~\".+\"})\n+"} {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		problems := Check(expr)
		for _, p := range problems {
			if p.Message == "" || p.Pos.Offset < 0 || p.Pos.Offset > len(expr) || p.Pos.Line < 1 || p.Pos.Column < 1 {
				t.Fatalf("%q: %+v", expr, p)
			}
		}
		if problems != nil {
			return
		}
		e, _ := Parse(expr)
		if again := Check(e.String()); again != nil {
			t.Fatalf("%q prints as %q: %s", expr, e, Strings(again))
		}
		if counting, problems := Contribution(expr, "cluster"); problems == nil && Check(counting) != nil {
			t.Fatalf("%q is counted by the invalid expression %q", expr, counting)
		}
	})
}

func FuzzRender(f *testing.F) {
	for _, fact := range hostile {
		f.Add(fact)
	}
	tmpl, problems := ParseTemplate(`sum(up{namespace="$namespace"})`, testVars)
	if problems != nil {
		f.Fatal(Strings(problems))
	}
	f.Fuzz(func(t *testing.T, fact string) { assertOneMatcher(t, tmpl, fact) })
}

func FuzzParseTemplate(f *testing.F) {
	f.Add(`floor(free{model="$model"} / $devices_per_pod)`)
	f.Add(`-$model`)
	f.Fuzz(func(t *testing.T, expr string) {
		Check(expr)
		tmpl, problems := ParseTemplate(expr, testVars)
		if problems != nil {
			return
		}
		got, err := tmpl.Render(map[string]string{"model": "1", "devices_per_pod": "2", "namespace": "3"})
		if err != nil {
			t.Fatalf("%q was accepted, and does not render: %v", expr, err)
		}
		if p := Check(got); p != nil {
			t.Fatalf("%q rendered as %q: %s", expr, got, Strings(p))
		}
	})
}

func assertOneMatcher(t *testing.T, tmpl *Template, fact string) {
	t.Helper()
	got, err := tmpl.Render(map[string]string{"namespace": fact})
	if err != nil {
		t.Fatalf("%q: %v", fact, err)
	}
	e, problems := Parse(got)
	if problems != nil {
		t.Fatalf("%q rendered as %q: %s", fact, got, Strings(problems))
	}
	agg, ok := e.(*parser.AggregateExpr)
	if !ok {
		t.Fatalf("%q rendered as %q, a %T", fact, got, e)
	}
	sel, ok := agg.Expr.(*parser.VectorSelector)
	if !ok || len(sel.LabelMatchers) != 2 {
		t.Fatalf("%q rendered as %q", fact, got)
	}
	m := sel.LabelMatchers[0]
	want, kind := fact, labels.MatchEqual
	if fact == "" {
		want, kind = ".+", labels.MatchRegexp
	}
	if m.Name != "namespace" || m.Type != kind || m.Value != want {
		t.Fatalf("%q rendered as %q: matcher %v", fact, got, m)
	}
}

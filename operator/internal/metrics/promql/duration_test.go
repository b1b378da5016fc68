package promql

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

func TestCheckDurations(t *testing.T) {
	for expr, want := range map[string]string{
		`rate(x_total[5m * 2])`:                   "",
		`rate(x_total[5m*2])`:                     "",
		`x offset (1h / 2)`:                       "",
		`max_over_time(x[2 * 1h:max_of(1m, 30)])`: "",
		`rate(x_total[5m + step()])`:              "",
		`rate(x_total[-(-5m)])`:                   "",
		`rate(x_total[step()])`:                   "1:14: duration must be greater than 0",
		`rate(x_total[5m - 10m])`:                 "1:14: duration must be greater than 0",
		`rate(x_total[5m / (1 - 1)])`:             "1:14: division by 0 in a duration",
		`rate(x_total[5m % 0])`:                   "1:17: modulo by zero; 1:1: duration must be greater than 0",
		`rate(x_total[5m % (1 - 1)])`:             "1:14: division by 0 in a duration",
		`rate(x_total[10 ^ 300])`:                 "1:14: duration is out of range",
		`x offset (0 ^ -1)`:                       "1:11: duration is out of range",
		`max_over_time(x[1h:5m - 5m])`:            "1:20: duration must be greater than 0",
	} {
		if got := Strings(Check(expr)); got != want {
			t.Errorf("%s\n got %q\nwant %q", expr, got, want)
		}
	}
}

// TestParseComputesDurations: those who read the parsed expression find the result, and its text
// stays the author's.
func TestParseComputesDurations(t *testing.T) {
	const text = `rate(x_total[5m * 2] offset -(1m + 30)) + max_over_time(y[1h * 2:2 ^ 3] offset (7m % 4m))`
	e, problems := Parse(text)
	if problems != nil {
		t.Fatal(Strings(problems))
	}
	var got []string
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			got = append(got, "offset "+n.OriginalOffset.String())
		case *parser.MatrixSelector:
			got = append(got, "range "+n.Range.String())
		case *parser.SubqueryExpr:
			got = append(got, n.Range.String()+" "+n.Step.String()+" "+n.OriginalOffset.String())
		}
		return nil
	})
	want := []string{"range " + (10 * time.Minute).String(), "offset -1m30s", "2h0m0s 8s 3m0s", "offset 0s"}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("got %q, want %q", got, want)
	}
	if again := e.String(); !strings.Contains(again, "[5m * 2]") {
		t.Errorf("the text is %s", again)
	}
}

func TestPinnedReportsDurationsOfTheQuery(t *testing.T) {
	for expr, want := range map[string]string{
		`rate(x_total[5m * 2])`:          "",
		`rate(x_total[5m + step()])`:     "1:6: step() and range() have another meaning in a range query",
		`x offset (range() * 2)`:         "1:1: step() and range()",
		`max_over_time(x[1h:1m+step()])`: "1:15: step() and range()",
	} {
		if got := Strings(Pinned(expr)); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %q", expr, got, want)
		}
	}
}

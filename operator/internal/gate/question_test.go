package gate

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// A default query that reads a series which no rule records would find no room for
// ever.
func TestDefaultQueriesReadOurRules(t *testing.T) {
	rules, err := os.ReadFile("../../../rules/recording.yaml")
	if err != nil {
		t.Fatal(err)
	}
	series := regexp.MustCompile(`[a-z_]+:[a-z_]+:[a-z]+`)
	for _, q := range Queries(&v1alpha1.PlacementGateSpec{}, "cluster") {
		names := series.FindAllString(q.Expr, -1)
		if len(names) == 0 {
			t.Errorf("%s reads no recording rule: %s", q.Name, q.Expr)
		}
		for _, name := range names {
			if !strings.Contains(string(rules), "- record: "+name+"\n") {
				t.Errorf("%s reads %s, which no rule records", q.Name, name)
			}
		}
	}
}

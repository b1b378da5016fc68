package gate

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// A default query over a series that no rule records would never find room.
func TestDefaultQueriesReadRecordingRules(t *testing.T) {
	var recording string
	for _, subject := range []string{"nodes", "queues"} {
		content, err := os.ReadFile("../../../rules/recording-" + subject + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		recording += string(content)
	}
	series := regexp.MustCompile(`[a-z_]+:[a-z_]+:[a-z]+`)
	for _, q := range Queries(&v1alpha1.PlacementGateSpec{}, "cluster") {
		names := series.FindAllString(q.Expr, -1)
		if len(names) == 0 {
			t.Errorf("query %s reads no recording rule: %s", q.Name, q.Expr)
		}
		for _, name := range names {
			if !strings.Contains(recording, "- record: "+name+"\n") {
				t.Errorf("query %s reads %s, which no rule records", q.Name, name)
			}
		}
	}
}

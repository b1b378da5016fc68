package main

import (
	"strings"
	"testing"
)

// The operator publishes -100 for a cluster without metrics, also before the first
// metrics arrive.
func TestTableShowsNoScoreBeforeTheFirstOne(t *testing.T) {
	table := &scoreTable{}
	for _, step := range []struct {
		scores map[string]int32
		want   string
	}{
		{nil, "no score yet"},
		{map[string]int32{"headroom": -100, "idle": -100, "total": -100}, "no score yet"},
		{map[string]int32{"headroom": 44, "idle": 100, "total": 72}, "44        100   72"},
		{map[string]int32{"headroom": -100, "idle": -100, "total": -100}, "-100      -100  -100"},
	} {
		text, err := table.format([]row{{cluster: "cluster1", free: map[string]float64{"cluster1": 16}, scores: step.scores}})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, step.want) {
			t.Errorf("with the scores %v, want %q in:\n%s", step.scores, step.want, text)
		}
		if strings.Contains(step.want, "no score") && strings.Contains(text, "-100") {
			t.Errorf("with the scores %v, the table shows -100:\n%s", step.scores, text)
		}
	}
}

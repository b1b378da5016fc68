package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestReportFindsProblems(t *testing.T) {
	const good = `{"panels": [
		{"title": "Free", "type": "timeseries", "rows": 9, "fields": [{"name": "east", "values": 9, "numbers": 9}], "cutNames": ["GPU-93925f05 gpu-1"]},
		{"title": "Nodes", "type": "table", "rows": 2, "fields": [], "cutCells": ["GPU-93925f05-83e6-daa2-ef0a-be292628b599"]}]}`
	for _, tc := range []struct{ name, old, replacement, want string }{
		{"nothing wrong", `"Free"`, `"Free"`, ""},
		{"a page that fails", `{"panels"`, `{"errors": ["TypeError"], "panels"`, "TypeError"},
		{"a query that fails", `"type": "table"`, `"type": "table", "errors": ["A: parse error"]`, `"Nodes" has a failed query: A: parse error`},
		{"an empty panel", `[{"name": "east", "values": 9, "numbers": 9}]`, `[], "rows": 0`, `"Free" is empty`},
		{"only NaN", `"numbers": 9`, `"numbers": 0`, `"Free" has no number for "east"`},
		{"many series", `[{"name"`, `[` + strings.Repeat(`{"name": "x", "numbers": 1},`, 10) + `{"name"`, `"Free" has 11 series`},
		{"a cut title", `"rows": 9`, `"cutTitles": ["Free"]`, `"Free" cuts the header "Free"`},
		{"a cut name", `["GPU-93925f05 gpu-1"]`, `["east-gpu-1"]`, `"Free" cuts the name "east-gpu-1" in the legend`},
		{"a cut header", `"rows": 2`, `"rows": 2, "cutHeaders": ["Cluster"]`, `"Nodes" cuts the header "Cluster"`},
		{"a cut model", `"cutCells": ["GPU-`, `"cutCells": ["NVIDIA-H100-80GB-HBM3", "GPU-`, `"Nodes" cuts the cell "NVIDIA-H100-80GB-HBM3"`},
		{"no panels", good, `{}`, "no panels"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r report
			if err := json.Unmarshal([]byte(strings.Replace(good, tc.old, tc.replacement, 1)), &r); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(r.problems("x.json", false), "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestReportAcceptsListedEmptyPanels(t *testing.T) {
	r := report{Panels: []panel{{Title: "Chips", Type: "table"}}}
	if got := r.problems("tpu.json", true); got != nil {
		t.Errorf("a cluster without TPUs: %q", got)
	}
	if got := r.problems("tpu.json", false); got == nil {
		t.Error("the fleet has TPUs, so an empty panel is a problem")
	}
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
)

// deviceID matches identifiers whose first characters differ between devices.
var deviceID = regexp.MustCompile(`^(GPU|TPU)-[0-9a-f]{8}[- ]`)

// maxSeries is how many series a graph may have.
const maxSeries = 10

// report of a page.
type report struct {
	Errors []string `json:"errors"`
	Panels []panel  `json:"panels"`
}

type panel struct {
	Title  string   `json:"title"`
	Type   string   `json:"type"`
	Errors []string `json:"errors"`
	Rows   int      `json:"rows"`
	Fields []struct {
		Name string `json:"name"`
		// Values counts all values, and Numbers those that are neither missing nor NaN.
		Values  int `json:"values"`
		Numbers int `json:"numbers"`
	} `json:"fields"`
	CutNames   []string `json:"cutNames"`
	CutTitles  []string `json:"cutTitles"`
	CutHeaders []string `json:"cutHeaders"`
	CutCells   []string `json:"cutCells"`
}

// emptyOnOneCluster are the panels that may be empty or have columns without a number on one
// Prometheus, with the reason. A dashboard alone stands for all of its panels. On the fleet no
// panel may be empty.
var emptyOnOneCluster = map[string]string{
	"tpu.json":                                    "the cluster has no TPUs",
	"devices.json/Free MIG instances":             "no device of the cluster is in MIG mode",
	"devices.json/Memory and link errors":         "no device of the cluster has errors",
	"devices.json/Shared devices":                 "no device of the cluster is shared",
	"devices.json/Interference on shared devices": "no device of the cluster is shared",
	"self.json/Nodes without the kubelet":         "all kubelets of the cluster respond",
	"self.json/Failed collections":                "no collection of the cluster has failed",
	"self.json/Failed library calls":              "no call of the cluster has failed",
	"self.json/Dropped values":                    "all values of the cluster are in their range",
}

// check returns an error that lists the problems of all pages.
func check(shots []shot, oneCluster bool) error {
	var problems []error
	for _, s := range shots {
		content, err := os.ReadFile(s.Report)
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal(content, &r); err != nil {
			return fmt.Errorf("%s: %w", s.Report, err)
		}
		for _, p := range r.problems(s.Dashboard, oneCluster) {
			problems = append(problems, fmt.Errorf("%s: %s", s.Picture, p))
		}
	}
	return errors.Join(problems...)
}

// problems of a page, one sentence each.
func (r report) problems(board string, oneCluster bool) []string {
	found := slices.Clone(r.Errors)
	if len(r.Panels) == 0 {
		found = append(found, "the page has no panels")
	}
	mayBeEmpty := func(title string) bool {
		return oneCluster && (emptyOnOneCluster[board] != "" || emptyOnOneCluster[board+"/"+title] != "")
	}
	for _, p := range r.Panels {
		report := func(format string, args ...any) {
			found = append(found, fmt.Sprintf("panel %q ", p.Title)+fmt.Sprintf(format, args...))
		}
		for _, e := range p.Errors {
			report("has a failed query: %s", e)
		}
		if !mayBeEmpty(p.Title) {
			p.reportMissingNumbers(report)
		}
		if p.Type == "timeseries" && len(p.Fields) > maxSeries {
			report("has %d series, may have %d", len(p.Fields), maxSeries)
		}
		for _, text := range slices.Concat(p.CutTitles, p.CutHeaders) {
			report("cuts the header %q", text)
		}
		for _, text := range p.CutNames {
			if !deviceID.MatchString(text) {
				report("cuts the name %q in the legend", text)
			}
		}
		for _, text := range p.CutCells {
			if !deviceID.MatchString(text) {
				report("cuts the cell %q", text)
			}
		}
	}
	return found
}

func (p panel) reportMissingNumbers(report func(string, ...any)) {
	if len(p.Fields) == 0 && p.Rows == 0 {
		report("is empty")
	}
	for _, f := range p.Fields {
		if f.Numbers == 0 {
			report("has no number for %q", f.Name)
		}
	}
}

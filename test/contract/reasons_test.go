package contract

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reasonsOfHealth are the reasons of conditions that need no document: nothing is wrong, and the message
// says the rest.
var reasonsOfHealth = []string{
	"Deciding", "Valid", "Succeeding", "Meetable", "Decided", "SeveralClusters", "Found", "Written", "NotWanted", "OnlyDispatcher", "DispatchOff", "NoPreemption", "QuotaAboveDevices",
}

// A user finds the reason of a condition in a document beside what to do.
func TestConditionReasonsAreDocumented(t *testing.T) {
	var documents strings.Builder
	for _, file := range findFiles(t, filepath.Join(root, "operator", "docs"), ".md") {
		if filepath.Base(file) != "api.md" {
			documents.WriteString(readFile(t, file))
		}
	}
	constant := regexp.MustCompile(`(?m)^(?:\t|const )(Reason\w+) += "(\w+)"`)
	found := 0
	for _, file := range findFiles(t, filepath.Join(root, "operator", "api"), ".go") {
		for _, m := range constant.FindAllStringSubmatch(readFile(t, file), -1) {
			found++
			isNamed, isHealth := strings.Contains(documents.String(), "`"+m[2]+"`"), slices.Contains(reasonsOfHealth, m[2])
			if isNamed == isHealth {
				t.Errorf("%s (%s): a document names it: %t, it is in reasonsOfHealth: %t", m[2], m[1], isNamed, isHealth)
			}
		}
	}
	if found < 30 {
		t.Errorf("%d reasons", found)
	}
}

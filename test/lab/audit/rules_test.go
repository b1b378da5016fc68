package audit

import (
	"bytes"
	"strings"
	"testing"
)

func TestForbiddenWrites(t *testing.T) {
	for _, tc := range Cases() {
		t.Run(tc.Name, func(t *testing.T) {
			after := tc.After
			after.ResourceVersion = "10"
			// The log is sorted by completion: the later write comes first here.
			log := append(auditLine(t, operator, tc.Verb, tc.Subresource, tc.Manager, after), auditLine(t, "kueue", "update", "status", "", tc.Before)...)
			l, err := Read(bytes.NewReader(log))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(l.ForbiddenWrites(rules), "\n")
			if (got == "") != (tc.Reason == "") || !strings.Contains(got, tc.Reason) {
				t.Errorf("got %q, want %q", got, tc.Reason)
			}
		})
	}
}

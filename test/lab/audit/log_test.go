package audit

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
)

func TestMovedWorkloads(t *testing.T) {
	first, second := pendingWorkload(admitOnFirst), pendingWorkload(admitOnSecond)
	second.ResourceVersion = "10"
	l, err := Read(bytes.NewReader(append(auditLine(t, "kueue", "patch", "status", "", first), auditLine(t, "kueue", "patch", "status", "", second)...)))
	if err != nil {
		t.Fatal(err)
	}
	if got := l.MovedWorkloads(); len(got) != 1 || got[0] != "team-a/job moved from cluster1 to cluster2" {
		t.Errorf("got %v", got)
	}
}

// The apiserver may have stored a write that timed out, so the log may lack the
// state before the next write. A write that a webhook refused was not stored.
func TestTimedOutWriteExcusesTheNext(t *testing.T) {
	for _, tc := range []struct {
		name      string
		code      int
		forbidden int
	}{
		{"timeout", http.StatusGatewayTimeout, 0},
		{"refused by a webhook", http.StatusInternalServerError, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			after := pendingWorkload(setReady, annotate)
			after.ResourceVersion = "10"
			log := auditLine(t, "kueue", "update", "status", "", pendingWorkload())
			failed := auditLine(t, operator, "patch", "status", checkManager, nil)
			failed = bytes.Replace(failed, []byte(`"code":200`), fmt.Appendf(nil, `"code":%d`, tc.code), 1)
			log = append(append(log, failed...), auditLine(t, operator, "patch", "", checkManager, after)...)
			l, err := Read(bytes.NewReader(log))
			if err != nil {
				t.Fatal(err)
			}
			if got := l.ForbiddenWrites(rules); len(got) != tc.forbidden {
				t.Errorf("forbidden writes %v, want %d", got, tc.forbidden)
			}
			if got := l.Refused[operator][tc.code]; got != 1 {
				t.Errorf("%d refused writes with status %d, want 1", got, tc.code)
			}
		})
	}
}

// A dry run stores nothing, so its result has no resource version.
func TestReadIgnoresDryRuns(t *testing.T) {
	created := pendingWorkload()
	created.ResourceVersion = ""
	l, err := Read(bytes.NewReader(auditLine(t, "kueue", "create", "", "kueue&dryRun=All", created)))
	if err != nil || l.WorkloadCount() != 0 || l.Writes["kueue"] != 0 {
		t.Errorf("got %+v, %v, want no write", l, err)
	}
}

func TestReadRejectsMalformedEvents(t *testing.T) {
	valid := auditLine(t, "kueue", "update", "status", "", pendingWorkload())
	for _, tc := range []struct{ name, log string }{
		{"not JSON", "nonsense\n"},
		{"resource version is not a number", string(bytes.Replace(valid, []byte(`"resourceVersion":"9"`), []byte(`"resourceVersion":"x"`), 1))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Read(bytes.NewReader([]byte(tc.log))); err == nil {
				t.Error("no error")
			}
		})
	}
}

package audit

import (
	"bytes"
	"strings"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestForbiddenWrites(t *testing.T) {
	type states = []func(*kueue.Workload)
	for _, tc := range []struct {
		name                       string
		verb, subresource, manager string
		before, after              states
		want                       string
	}{
		{"gate sets its check Ready", "patch", "status", checkManager, nil, states{setReady}, ""},
		{"gate sets its check to Retry", "patch", "status", checkManager, nil, states{setRetry, requeueNow}, ""},
		{"gate writes its annotation", "patch", "", checkManager, nil, states{annotate}, ""},
		{"yielding workload is deactivated", "patch", "", checkManager, nil, states{deactivate, putToSleep}, ""},
		{"sleeping workload is activated", "patch", "", checkManager, states{deactivate, putToSleep}, states{annotate}, ""},
		{"first nomination", "patch", "status", admissionManager, states{setReady}, states{setReady, nominateFirst}, ""},
		{"second nomination", "patch", "status", admissionManager, states{setReady, nominateFirst}, states{setReady, nominateBoth}, ""},
		{"repair of an old eviction", "patch", "status", checkManager, states{evictedAgo(9 * time.Second)}, states{evictedAgo(9 * time.Second), setReady}, ""},
		{"nomination repairs an old eviction of an inactive workload", "patch", "status", admissionManager, states{evictedAgo(time.Minute), deactivate, setReady, nominateFirst},
			states{evictedAgo(time.Minute), deactivate, setReady, nominateBoth}, ""},

		{"update instead of patch", "update", "status", checkManager, nil, states{setReady}, "may only patch"},
		{"deactivation without a time", "patch", "", checkManager, nil, states{deactivate}, "without recording until when"},
		{"activation against the user", "patch", "", checkManager, states{deactivate}, nil, "another user deactivated"},
		{"deactivation without quota", "patch", "", checkManager, states{removeQuota}, states{removeQuota, deactivate, putToSleep}, "has no quota"},
		{"change of a label", "patch", "", checkManager, nil, states{addLabel}, "more than its annotation"},
		{"change of MultiKueue's check", "patch", "status", checkManager, nil, states{setMultiKueueReady}, "the entry of check multikueue"},
		{"change of the number of checks", "patch", "status", checkManager, states{removeGateCheck}, nil, "adds or removes an entry"},
		{"Retry with a delay", "patch", "status", checkManager, nil, states{setRetry, requeueLater}, "Retry later"},
		{"nomination by the check's manager", "patch", "status", checkManager, nil, states{setReady, nominateFirst}, "more than its check"},
		{"unknown field manager", "patch", "status", "plimsoll", states{setReady}, states{setReady, nominateFirst}, "writes the status as plimsoll"},
		{"nomination before the check is Ready", "patch", "status", admissionManager, nil, states{nominateFirst}, "while check plimsoll is Pending"},
		{"nomination after admission", "patch", "status", admissionManager, states{setReady, admitOnFirst}, states{setReady, admitOnFirst, nominateFirst}, "cluster1 has admitted"},
		{"revoked nomination", "patch", "status", admissionManager, states{setReady, nominateFirst}, states{setReady, nominateSecond}, "revokes the nomination of cluster1"},
		{"nomination that also removes quota", "patch", "status", admissionManager, states{setReady}, states{setReady, nominateFirst, removeQuota}, "more than the nominated"},
		{"check during a recent eviction", "patch", "status", checkManager, states{evictedAgo(time.Second)}, states{evictedAgo(time.Second), setReady}, "is evicted"},
		{"nomination during a recent eviction", "patch", "status", admissionManager, states{evictedAgo(time.Second), setReady}, states{evictedAgo(time.Second), setReady, nominateFirst}, "is evicted"},
		{"nomination of an inactive workload", "patch", "status", admissionManager, states{deactivate, setReady}, states{deactivate, setReady, nominateFirst}, "is not active"},
		{"Retry during an old eviction", "patch", "status", checkManager, states{evictedAgo(time.Minute)}, states{evictedAgo(time.Minute), setRetry, requeueNow}, "is evicted"},
		{"check of a finished workload", "patch", "status", checkManager, states{finish}, states{finish, setReady}, "is finished"},
		{"check of a workload without quota", "patch", "status", checkManager, states{removeQuota}, states{removeQuota, setReady}, "has no quota"},
		{"check of an inactive workload", "patch", "status", checkManager, states{deactivate}, states{deactivate, setReady}, "is not active"},
		{"check of a deleted workload", "patch", "status", checkManager, states{markDeleted}, states{markDeleted, setReady}, "is being deleted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			after := pendingWorkload(tc.after...)
			after.ResourceVersion = "10"
			// The log is sorted by completion: the later write comes first here.
			log := append(auditLine(t, operator, tc.verb, tc.subresource, tc.manager, after), auditLine(t, "kueue", "update", "status", "", pendingWorkload(tc.before...))...)
			l, err := Read(bytes.NewReader(log))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(l.ForbiddenWrites(rules), "\n")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

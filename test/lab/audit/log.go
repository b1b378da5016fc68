// Package audit checks the writes to the hub's Workloads against the rules that
// the operator must follow. It reads the audit log of the hub's kube-apiserver
// and shares no code with the operator.
package audit

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// apiserverTimeout is how long the apiserver works on a write before it responds
// with 504.
const apiserverTimeout = time.Minute

// event holds the fields of an audit event that the checks use.
type event struct {
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	At         time.Time `json:"requestReceivedTimestamp"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations    map[string]string `json:"annotations"`
	ResponseObject json.RawMessage   `json:"responseObject"`

	// after is the Workload that the write produced.
	after *kueue.Workload
	// manager is the request's field manager.
	manager string
	// version is the resource version of after.
	version uint64
}

func (e *event) objectName() string { return e.Object.Namespace + "/" + e.Object.Name }

// parse fills the derived fields. It returns false if the response holds no
// Workload: a completed deletion returns a Status.
func (e *event) parse() (bool, error) {
	var response struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(e.ResponseObject, &response); err != nil || response.Kind != "Workload" {
		return false, err
	}
	if err := json.Unmarshal(e.ResponseObject, &e.after); err != nil {
		return false, err
	}
	e.ResponseObject = nil
	uri, err := url.Parse(e.RequestURI)
	if err != nil {
		return false, err
	}
	e.manager = uri.Query().Get("fieldManager")
	e.version, err = strconv.ParseUint(e.after.ResourceVersion, 10, 64)
	return true, err
}

// isDryRun returns whether the request stored nothing. Kueue completes the pod sets of a TrainJob by
// the dry run of a creation.
func (e *event) isDryRun() bool {
	uri, err := url.Parse(e.RequestURI)
	return err == nil && uri.Query().Has("dryRun")
}

// Log holds every write of the hub's Workloads, and the requests of the operator.
type Log struct {
	// Writes counts accepted writes by user.
	Writes map[string]int
	// Refused counts refused writes by user and HTTP status. 409 is a conflict.
	Refused map[string]map[int]int

	// granted holds, by user, the permissions that requests used.
	granted map[string]map[Permission]bool
	// denied holds, by user, the messages of requests that roles or admission policies
	// refused.
	denied map[string][]string
	byUID  map[types.UID][]event
	// timeouts lists the writes with status 504 by object. Such a write may have
	// been stored.
	timeouts map[string][]time.Time
}

// Read parses an audit log with one JSON event per line. It ignores an incomplete
// last line.
func Read(r io.Reader) (*Log, error) {
	l := &Log{Writes: map[string]int{}, Refused: map[string]map[int]int{}, granted: map[string]map[Permission]bool{},
		denied: map[string][]string{}, byUID: map[types.UID][]event{}, timeouts: map[string][]time.Time{}}
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var e event
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err == nil {
			err = l.add(e)
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
	}
	for _, events := range l.byUID {
		// The log is sorted by completion, not by write.
		slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.version, b.version) })
	}
	return l, nil
}

func (l *Log) add(e event) error {
	l.addPermission(&e)
	user, code := e.User.Username, e.ResponseStatus.Code
	switch {
	case e.Object.Resource != "workloads" || !isWrite(e.Verb) || e.isDryRun():
		return nil
	case code >= 300:
		if l.Refused[user] == nil {
			l.Refused[user] = map[int]int{}
		}
		l.Refused[user][code]++
		if code == http.StatusGatewayTimeout {
			l.timeouts[e.objectName()] = append(l.timeouts[e.objectName()], e.At)
		}
		return nil
	}
	l.Writes[user]++
	isWorkload, err := e.parse()
	if err != nil || !isWorkload {
		return err
	}
	l.byUID[e.after.UID] = append(l.byUID[e.after.UID], e)
	return nil
}

// isWrite returns whether the verb changes objects.
func isWrite(verb string) bool { return verb != "get" && verb != "list" && verb != "watch" }

// WorkloadCount returns the number of Workloads that were written.
func (l *Log) WorkloadCount() int { return len(l.byUID) }

// mayMissState returns whether the log may lack a state between two writes of an
// object, because a write in between timed out.
func (l *Log) mayMissState(before, after *event) bool {
	return slices.ContainsFunc(l.timeouts[after.objectName()], func(at time.Time) bool {
		return at.After(before.At.Add(-apiserverTimeout)) && !at.After(after.At)
	})
}

// ForbiddenWrites returns a sentence for each write of the operator that violates
// the rules, in a stable order. If the log may lack the state before a write, the
// write is skipped.
func (l *Log) ForbiddenWrites(rules Rules) []string {
	var all []string
	for _, uid := range slices.Sorted(maps.Keys(l.byUID)) {
		events := l.byUID[uid]
		for i := range events {
			e := &events[i]
			if e.User.Username != rules.User || i > 0 && l.mayMissState(&events[i-1], e) {
				continue
			}
			reason := "the log has no state before it"
			if i > 0 {
				reason = rules.violation(e, events[i-1].after)
			}
			if reason != "" {
				all = append(all, fmt.Sprintf("%s %s/%s at %s (resourceVersion %s): %s", e.Verb, e.after.Namespace,
					e.after.Name, e.At.Format("15:04:05.000"), e.after.ResourceVersion, reason))
			}
		}
	}
	return all
}

// MovedWorkloads returns a sentence for each Workload whose cluster changed without
// an eviction in between, by any user. Such a Workload was admitted twice.
func (l *Log) MovedWorkloads() []string {
	var all []string
	for _, events := range l.byUID {
		for i := 1; i < len(events); i++ {
			was, is := events[i-1].after.Status.ClusterName, events[i].after.Status.ClusterName
			if was != nil && is != nil && *was != *is {
				all = append(all, fmt.Sprintf("%s/%s moved from %s to %s", events[i].after.Namespace, events[i].after.Name, *was, *is))
			}
		}
	}
	slices.Sort(all)
	return all
}

// Package audit judges what was written to the hub's Workloads by the
// apiserver's own record of it, independently of the operator's code.
package audit

import (
	"bufio"
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

// event is what is read of an audit event of a write.
type event struct {
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	At         time.Time `json:"requestReceivedTimestamp"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Answer json.RawMessage `json:"responseObject"`
	// After is the answer where it is a Workload: a deletion that is done is
	// answered by a Status.
	After *kueue.Workload `json:"-"`
}

func (e *event) object() string { return e.Object.Namespace + "/" + e.Object.Name }

// manager of the fields that the write asked for.
func (e *event) manager() string {
	u, err := url.Parse(e.RequestURI)
	if err != nil {
		return ""
	}
	return u.Query().Get("fieldManager")
}

func (e *event) version() uint64 {
	v, err := strconv.ParseUint(e.After.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// Log is every accepted write of a hub's Workloads.
type Log struct {
	// Writes accepted, by user.
	Writes map[string]int
	// Refused writes, by user and HTTP status: 409 are conflicts.
	Refused map[string]map[int]int

	byUID map[types.UID][]event
	// unanswered writes, by object: the apiserver gave up waiting, and they may have
	// been made all the same.
	unanswered map[string][]time.Time
}

// Read a log of one JSON event a line, as the apiserver writes it. A last line
// that is not yet complete is left out.
func Read(r io.Reader) (*Log, error) {
	l := &Log{Writes: map[string]int{}, Refused: map[string]map[int]int{}, byUID: map[types.UID][]event{}, unanswered: map[string][]time.Time{}}
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return l, nil
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
}

func (l *Log) add(e event) error {
	switch {
	case e.Object.Resource != "workloads":
		return nil
	case e.Response.Code >= 300:
		if l.Refused[e.User.Username] == nil {
			l.Refused[e.User.Username] = map[int]int{}
		}
		l.Refused[e.User.Username][e.Response.Code]++
		if e.Response.Code == http.StatusGatewayTimeout {
			l.unanswered[e.object()] = append(l.unanswered[e.object()], e.At)
		}
		return nil
	}
	l.Writes[e.User.Username]++
	var answer struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(e.Answer, &answer); err != nil || answer.Kind != "Workload" {
		return err
	}
	if err := json.Unmarshal(e.Answer, &e.After); err != nil {
		return err
	}
	e.Answer = nil
	l.byUID[e.After.UID] = append(l.byUID[e.After.UID], e)
	return nil
}

// Workloads that were ever written.
func (l *Log) Workloads() int { return len(l.byUID) }

// unseen says whether a state between two writes may be missing from the log: the
// apiserver waits for a minute before it gives up.
func (l *Log) unseen(before, after *event) bool {
	return slices.ContainsFunc(l.unanswered[after.object()], func(at time.Time) bool {
		return at.After(before.At.Add(-time.Minute)) && !at.After(after.At)
	})
}

// Forbidden are the operator's writes that Kueue's state forbids, each as a
// sentence, sorted. A write on a state that the log may not show is not judged.
func (l *Log) Forbidden(rules Rules) []string {
	var all []string
	for _, uid := range slices.Sorted(maps.Keys(l.byUID)) {
		events := l.byUID[uid]
		slices.SortStableFunc(events, func(a, b event) int { return int(int64(a.version()) - int64(b.version())) })
		for i := range events {
			if events[i].User.Username != rules.User || i > 0 && l.unseen(&events[i-1], &events[i]) {
				continue
			}
			why := "it has no state before"
			if i > 0 {
				why = rules.judge(&events[i], events[i-1].After)
			}
			if why != "" {
				all = append(all, fmt.Sprintf("%s %s/%s at %s (resourceVersion %s): %s", events[i].Verb, events[i].After.Namespace,
					events[i].After.Name, events[i].At.Format("15:04:05.000"), events[i].After.ResourceVersion, why))
			}
		}
	}
	return all
}

// Moves are workloads whose cluster changed from one to another without an
// eviction in between: admitted twice. Whoever wrote it.
func (l *Log) Moves() []string {
	var all []string
	for _, events := range l.byUID {
		slices.SortStableFunc(events, func(a, b event) int { return int(int64(a.version()) - int64(b.version())) })
		for i := 1; i < len(events); i++ {
			was, is := events[i-1].After.Status.ClusterName, events[i].After.Status.ClusterName
			if was != nil && is != nil && *was != *is {
				all = append(all, fmt.Sprintf("%s/%s moved from %s to %s", events[i].After.Namespace, events[i].After.Name, *was, *is))
			}
		}
	}
	slices.Sort(all)
	return all
}

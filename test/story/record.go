package story

import (
	"encoding/json"
	"fmt"
	"os"
)

// Record is what happened to the jobs of a soak on the lab. The world replays it: a different decision of
// the operator there is a fault of the model. All times are in seconds since the record began.
type Record struct {
	// Quota on the hub, in devices.
	Quota       int64                 `json:"quota"`
	Workloads   []*RecordedWorkload   `json:"workloads"`
	Pods        []*RecordedPod        `json:"pods"`
	Faults      []RecordedFault       `json:"faults,omitempty"`
	Losses      []RecordedLoss        `json:"losses,omitempty"`
	Leaders     []RecordedLeader      `json:"leaders"`
	Connections []RecordedConnection  `json:"connections"`
	Scores      map[string][]Recorded `json:"scores,omitempty"` // by cluster
}

// RecordedWorkload is a Workload on the hub. A resized job has several.
type RecordedWorkload struct {
	Job      string  `json:"job"`
	UID      string  `json:"uid"`
	Elastic  bool    `json:"elastic,omitempty"`
	Replaces string  `json:"replaces,omitempty"` // UID of the slice that this one replaces
	Pods     int64   `json:"pods"`
	Devices  int64   `json:"devices"`  // of each pod
	Duration float64 `json:"duration"` // of each pod
	Priority int32   `json:"priority"`
	// States are the changes of the Workload. The first one is its creation.
	States []RecordedState `json:"states"`
}

// RecordedState is the state of a Workload from a time on.
type RecordedState struct {
	At        float64  `json:"at"`
	Inactive  bool     `json:"inactive,omitempty"`
	Quota     bool     `json:"quota,omitempty"`
	Nominated []string `json:"nominated,omitempty"`
	Cluster   string   `json:"cluster,omitempty"`
	Evicted   string   `json:"evicted,omitempty"` // reason
	Finished  bool     `json:"finished,omitempty"`
	PodsReady bool     `json:"podsReady,omitempty"`
	// Decided is the cluster that the gate has chosen: that of the message of its Ready check.
	Decided string `json:"decided,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}

// RecordedPod is a pod that had a node. Zero times have not come.
type RecordedPod struct {
	Job     string  `json:"job"`
	Cluster string  `json:"cluster"`
	Node    string  `json:"node"`
	Devices int64   `json:"devices"`
	Bound   float64 `json:"bound"`
	Ready   float64 `json:"ready,omitempty"`
	Ended   float64 `json:"ended,omitempty"` // it succeeded, failed or was deleted
}

// RecordedFault is a program that was down.
type RecordedFault struct {
	Program string  `json:"program"`
	From    float64 `json:"from"`
	To      float64 `json:"to"`
}

// RecordedLoss is a copy that was deleted behind Kueue's back.
type RecordedLoss struct {
	Job     string  `json:"job"`
	Cluster string  `json:"cluster"`
	At      float64 `json:"at"`
}

// RecordedLeader is a replica of the operator that became leader.
type RecordedLeader struct {
	Name string  `json:"name"`
	At   float64 `json:"at"`
}

// RecordedConnection is a change of the connection of the hub's Kueue to a cluster.
type RecordedConnection struct {
	Cluster string  `json:"cluster"`
	At      float64 `json:"at"`
	Active  bool    `json:"active"`
}

// Recorded is a number from a time on.
type Recorded struct {
	At    float64 `json:"at"`
	Value float64 `json:"value"`
}

// ReadRecord reads a record.
func ReadRecord(path string) (*Record, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("%s is no record of make soak RECORD=FILE: %w", path, err)
	}
	return r, nil
}

// Write writes the record.
func (r *Record) Write(path string) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

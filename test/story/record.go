package story

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Record is what happened to the jobs of a soak on the lab. The world replays it: a different decision of
// the operator there is a fault of the model, or of the operator. All times that are numbers are in seconds
// since Began.
type Record struct {
	// Began is the time 0: a full second, and at least one before the first change, so that no time in the record
	// is 0.
	Began time.Time `json:"began"`
	// Gate is the spec of the PlacementGate.
	Gate json.RawMessage `json:"gate"`
	// Quota on the hub, in devices.
	Quota       int64                `json:"quota"`
	Workloads   []*RecordedWorkload  `json:"workloads"`
	Leaders     []RecordedLeader     `json:"leaders"`
	Connections []RecordedConnection `json:"connections"`
}

// RecordedWorkload is a Workload on the hub. A resized job has several.
type RecordedWorkload struct {
	Name     string `json:"name"`
	UID      string `json:"uid"`
	Job      string `json:"job"`
	Elastic  bool   `json:"elastic,omitempty"`
	Replaces string `json:"replaces,omitempty"` // UID of the slice that this one replaces
	Pods     int64  `json:"pods"`
	Devices  int64  `json:"devices"` // of each pod
	Priority int32  `json:"priority"`
	// States are the changes of the Workload. The first one is its creation.
	States []RecordedState `json:"states"`
	// Decisions of the operator, in their order.
	Decisions []RecordedDecision `json:"decisions,omitempty"`
}

// RecordedState is the state of a Workload from a time on. Its other times are those that the Workload states,
// in full seconds; 0 = it states none.
type RecordedState struct {
	At        float64  `json:"at"`
	Inactive  bool     `json:"inactive,omitempty"`
	Reserved  float64  `json:"reserved,omitempty"` // it has quota since
	Nominated []string `json:"nominated,omitempty"`
	Cluster   string   `json:"cluster,omitempty"`
	Admitted  float64  `json:"admitted,omitempty"` // by the cluster
	Evicted   string   `json:"evicted,omitempty"`  // reason
	EvictedAt float64  `json:"evictedAt,omitempty"`
	PodsReady float64  `json:"podsReady,omitempty"`
	Finished  bool     `json:"finished,omitempty"`
	Deleted   bool     `json:"deleted,omitempty"`
}

// RecordedDecision is a decision of the operator and the metrics that it rests on, as the operator logs them.
type RecordedDecision struct {
	At      float64 `json:"at"`
	Attempt int     `json:"attempt"`
	// Decision is a gate.Decision, Candidates are []gate.Candidate, and Fleet is a gate.Fleet. Their times
	// are absolute.
	Decision   json.RawMessage `json:"decision"`
	Candidates json.RawMessage `json:"candidates"`
	Fleet      json.RawMessage `json:"fleet"`
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

// ReadRecord reads a record.
func ReadRecord(path string) (*Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	r := &Record{}
	content, err := gzip.NewReader(file)
	if err == nil {
		err = json.NewDecoder(content).Decode(r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no record of make soak RECORD=FILE: %w", path, err)
	}
	return r, nil
}

// Write writes the record.
func (r *Record) Write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.encode(file), file.Close())
}

func (r *Record) encode(w io.Writer) error {
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(packed).Encode(r), packed.Close())
}

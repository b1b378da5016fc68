package scoringpolicy

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// Paths of the explanations on the metrics server. The name of the policy or cluster
// follows.
const (
	PolicyPath  = "/explain/policy/"
	ClusterPath = "/explain/cluster/"
)

// PolicyExplanation describes the last round of one policy. It is the response of
// PolicyPath.
type PolicyExplanation struct {
	Policy     string               `json:"policy"`
	Time       time.Time            `json:"time"`
	DurationMS float64              `json:"durationMilliseconds"`
	Shadow     bool                 `json:"shadow,omitempty"`
	Refused    bool                 `json:"refused,omitempty"`
	Fresh      int                  `json:"freshClusters"`
	Known      int                  `json:"knownClusters"`
	Warnings   []string             `json:"warnings,omitempty"`
	Queries    []QueryExplanation   `json:"queries"`
	Clusters   []ClusterExplanation `json:"clusters"`
}

// QueryExplanation describes one query of a round.
type QueryExplanation struct {
	// Score is empty for the freshness query.
	Score      string   `json:"score,omitempty"`
	Query      string   `json:"query"`
	DurationMS float64  `json:"durationMilliseconds"`
	Series     int      `json:"series"`
	Warnings   []string `json:"warnings,omitempty"`
	Infos      []string `json:"infos,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// ClusterExplanation describes the scores of one cluster by one policy. The response of
// ClusterPath is a list with one entry per policy.
type ClusterExplanation struct {
	Policy  string             `json:"policy,omitempty"`
	Cluster string             `json:"cluster"`
	Scores  []ScoreExplanation `json:"scores"`
}

// ScoreExplanation describes one score of one cluster.
type ScoreExplanation struct {
	Name string `json:"name"`
	// Raw is the last usable value, and Points that value after normalization and
	// damping. They are absent if they are unknown.
	Raw    *float64 `json:"raw,omitempty"`
	Points *float64 `json:"points,omitempty"`
	// Value is the published score.
	Value   *int32 `json:"value,omitempty"`
	State   string `json:"state"`
	Outcome string `json:"outcome"`
	// Since is the time from which a usable value is missing.
	Since      *time.Time `json:"since,omitempty"`
	SampleTime *time.Time `json:"sampleTime,omitempty"`
	KeptUntil  *time.Time `json:"keptUntil,omitempty"`
}

// handlers returns the explanation endpoints by path.
func (r *Reconciler) handlers() map[string]http.Handler {
	return map[string]http.Handler{
		PolicyPath: r.serveJSON(PolicyPath, func(name string) any {
			if done := r.lastRound(name); done != nil {
				return explainPolicy(name, done)
			}
			return nil
		}),
		ClusterPath: r.serveJSON(ClusterPath, func(name string) any {
			if list := r.explainCluster(name); len(list) > 0 {
				return list
			}
			return nil
		}),
	}
}

// notLeading is the response of a replica without rounds to every request for an explanation.
const notLeading = "this replica of the operator is not the leader, and only the leader has rounds; query the leader, which the Lease plimsoll-operator names"

// isLeader reports whether this process runs rounds.
func (r *Reconciler) isLeader() bool {
	select {
	case <-r.elected:
		return true
	default:
		return false
	}
}

// serveJSON serves the result of find as JSON. find gets the name behind the path, and
// returns nil if there is no such object.
func (r *Reconciler) serveJSON(path string, find func(name string) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := strings.TrimPrefix(req.URL.Path, path)
		if req.Method != http.MethodGet || name == "" {
			http.Error(w, "expected GET "+path+"NAME", http.StatusBadRequest)
			return
		}
		if !r.isLeader() {
			http.Error(w, notLeading, http.StatusMisdirectedRequest)
			return
		}
		found := find(name)
		if found == nil {
			http.Error(w, "no round has scored "+name+" since this operator became the leader", http.StatusNotFound)
			return
		}
		body, err := json.MarshalIndent(found, "", "  ")
		if err != nil {
			log.FromContext(req.Context()).Error(err, "Could not encode an explanation", "path", req.URL.Path)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n')) // fails only if the client has disconnected
	})
}

func explainPolicy(name string, done *completedRound) *PolicyExplanation {
	r := done.report.Result
	e := &PolicyExplanation{
		Policy: name, Time: r.Time.Time(), DurationMS: milliseconds(done.took), Shadow: done.in.shadow,
		Refused: r.Refused, Fresh: r.Fresh, Known: r.Known, Warnings: done.in.warnings,
	}
	for _, q := range queriesOf(done.report) {
		e.Queries = append(e.Queries, explainQuery(q))
	}
	for i, cluster := range r.Clusters {
		e.Clusters = append(e.Clusters, ClusterExplanation{Cluster: cluster, Scores: explainScores(r, i)})
	}
	return e
}

// explainCluster explains the scores of a cluster by every policy, sorted by policy.
func (r *Reconciler) explainCluster(cluster string) []ClusterExplanation {
	var list []ClusterExplanation
	for policy, done := range r.lastRounds() {
		result := done.report.Result
		if i, ok := slices.BinarySearch(result.Clusters, cluster); ok {
			list = append(list, ClusterExplanation{Policy: policy, Cluster: cluster, Scores: explainScores(result, i)})
		}
	}
	slices.SortFunc(list, func(a, b ClusterExplanation) int { return strings.Compare(a.Policy, b.Policy) })
	return list
}

func explainQuery(q *round.QueryReport) QueryExplanation {
	e := QueryExplanation{
		Score: q.Name, Query: q.Query, DurationMS: milliseconds(q.Duration), Series: q.Series, Warnings: q.Warnings, Infos: q.Infos,
	}
	switch {
	case q.Problems != nil:
		e.Error = promql.Strings(q.Problems)
	case q.Err != nil:
		e.Error = q.Err.Error()
	}
	return e
}

// explainScores explains the scores of the i-th cluster of a result.
func explainScores(r *score.Result, i int) []ScoreExplanation {
	var list []ScoreExplanation
	for j, cell := range r.Row(i) {
		s := ScoreExplanation{
			Name: r.Names[j], State: cell.State.String(), Outcome: cell.Outcome.String(),
			Since: timeOrNil(cell.Since), SampleTime: timeOrNil(cell.SampleTime), KeptUntil: timeOrNil(cell.KeptUntil),
		}
		if points, ok := cell.KnownPoints(); ok {
			s.Points = &points
		}
		if !cell.SampleTime.IsZero() && !math.IsNaN(cell.Raw) {
			s.Raw = &cell.Raw
		}
		if cell.State != score.Omitted {
			s.Value = &cell.Value
		}
		list = append(list, s)
	}
	return list
}

func timeOrNil(i score.Instant) *time.Time {
	if i.IsZero() {
		return nil
	}
	t := i.Time()
	return &t
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

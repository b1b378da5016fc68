package scoringpolicy

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/round"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// Paths of the explanations on the metrics listener.
const (
	PolicyPath  = "/explain/policy/"
	ClusterPath = "/explain/cluster/"
)

// PolicyExplanation is the last round of one policy, as /explain/policy/NAME
// answers it.
type PolicyExplanation struct {
	Policy     string               `json:"policy"`
	Time       time.Time            `json:"time"`
	DurationMS float64              `json:"durationMilliseconds"`
	Shadow     bool                 `json:"shadow,omitempty"`
	Refused    bool                 `json:"refused,omitempty"`
	Fresh      int                  `json:"freshClusters"`
	Known      int                  `json:"knownClusters"`
	Queries    []QueryExplanation   `json:"queries"`
	Clusters   []ClusterExplanation `json:"clusters"`
}

// QueryExplanation is one question of a round.
type QueryExplanation struct {
	Score      string   `json:"score,omitempty"` // empty: freshness
	Query      string   `json:"query"`
	DurationMS float64  `json:"durationMilliseconds"`
	Series     int      `json:"series"`
	Warnings   []string `json:"warnings,omitempty"`
	Infos      []string `json:"infos,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// ClusterExplanation is one cluster's scores by one policy. /explain/cluster/NAME
// answers a list of these.
type ClusterExplanation struct {
	Policy  string             `json:"policy,omitempty"`
	Cluster string             `json:"cluster"`
	Scores  []ScoreExplanation `json:"scores"`
}

// ScoreExplanation is one score of one cluster.
type ScoreExplanation struct {
	Name       string     `json:"name"`
	Raw        *float64   `json:"raw,omitempty"` // last usable value
	Points     *float64   `json:"points,omitempty"`
	Value      *int32     `json:"value,omitempty"` // as published
	State      string     `json:"state"`
	Outcome    string     `json:"outcome"`
	Since      *time.Time `json:"since,omitempty"`
	SampleTime *time.Time `json:"sampleTime,omitempty"`
	HeldUntil  *time.Time `json:"heldUntil,omitempty"`
}

func (r *Reconciler) handlers() map[string]http.Handler {
	return map[string]http.Handler{
		PolicyPath: answer(PolicyPath, func(name string) any {
			if done := r.last(name); done != nil {
				return explainPolicy(name, done)
			}
			return nil
		}),
		ClusterPath: answer(ClusterPath, func(name string) any {
			if list := r.explainCluster(name); len(list) > 0 {
				return list
			}
			return nil
		}),
	}
}

// answer serves what find returns for the name behind the path, as JSON.
func answer(path string, find func(name string) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := strings.TrimPrefix(req.URL.Path, path)
		if req.Method != http.MethodGet || name == "" {
			http.Error(w, "want GET "+path+"NAME", http.StatusBadRequest)
			return
		}
		found := find(name)
		if found == nil {
			http.Error(w, "no round has spoken of "+name+" since this operator leads", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(found)
	})
}

func explainPolicy(name string, done *outcome) *PolicyExplanation {
	r := done.report.Result
	e := &PolicyExplanation{
		Policy: name, Time: r.Time.Time(), DurationMS: milliseconds(done.took), Shadow: done.in.shadow,
		Refused: r.Refused, Fresh: r.Fresh, Known: r.Known,
	}
	for _, a := range all(done.report) {
		e.Queries = append(e.Queries, explainQuery(a))
	}
	for i, cluster := range r.Clusters {
		e.Clusters = append(e.Clusters, ClusterExplanation{Cluster: cluster, Scores: explainScores(r, i)})
	}
	return e
}

func (r *Reconciler) explainCluster(cluster string) []ClusterExplanation {
	var list []ClusterExplanation
	for policy, done := range r.outcomes() {
		result := done.report.Result
		if i, ok := slices.BinarySearch(result.Clusters, cluster); ok {
			list = append(list, ClusterExplanation{Policy: policy, Cluster: cluster, Scores: explainScores(result, i)})
		}
	}
	slices.SortFunc(list, func(a, b ClusterExplanation) int { return strings.Compare(a.Policy, b.Policy) })
	return list
}

func explainQuery(a *round.QueryReport) QueryExplanation {
	q := QueryExplanation{
		Score: a.Name, Query: a.Query, DurationMS: milliseconds(a.Duration), Series: a.Series, Warnings: a.Warnings, Infos: a.Infos,
	}
	switch {
	case a.Problems != nil:
		q.Error = promql.Strings(a.Problems)
	case a.Err != nil:
		q.Error = a.Err.Error()
	}
	return q
}

func explainScores(r *score.Result, i int) []ScoreExplanation {
	var list []ScoreExplanation
	for j, cell := range r.Row(i) {
		s := ScoreExplanation{
			Name: r.Names[j], State: cell.State.String(), Outcome: cell.Outcome.String(),
			Since: stamp(cell.Since), SampleTime: stamp(cell.SampleTime), HeldUntil: stamp(cell.HeldUntil),
		}
		if !cell.SampleTime.IsZero() {
			s.Points = &cell.Points
			if !math.IsNaN(cell.Raw) {
				s.Raw = &cell.Raw
			}
		}
		if cell.State != score.Omitted {
			s.Value = &cell.Value
		}
		list = append(list, s)
	}
	return list
}

func stamp(i score.Instant) *time.Time {
	if i.IsZero() {
		return nil
	}
	t := i.Time()
	return &t
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

package gate

// Explanation of one workload: why it is where it is, or what it waits for.
type Explanation struct {
	Workload string `json:"workload"`
	Gate     string `json:"gate,omitempty"`
	// Check is our entry as it stands on the workload.
	State   string `json:"state,omitempty"`
	Message string `json:"message,omitempty"`
	// WaitsFor says in one sentence what has to happen next.
	WaitsFor  string               `json:"waitsFor"`
	Cluster   string               `json:"cluster,omitempty"`
	Nominated []string             `json:"nominated,omitempty"`
	Dispatch  Dispatch             `json:"dispatch"`
	Facts     Facts                `json:"facts"`
	Decision  Decision             `json:"decision"`
	Clusters  []ClusterExplanation `json:"clusters,omitempty"`
	// Problem of the metrics source.
	Problem string `json:"problem,omitempty"`
}

// ClusterExplanation is one candidate.
type ClusterExplanation struct {
	Verdict
	Why    string           `json:"why"`
	Scores map[string]Score `json:"scores,omitempty"`
	Ledger []Entry          `json:"ledger,omitempty"`
}

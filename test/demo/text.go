package main

// introduction is printed before the fleet starts.
const introduction = `Plimsoll demo

Three worker clusters with simulated GPUs:
  cluster1   16 H100 (8+8), 8 A100, 4 L4
  cluster2   20 H100 (4+4+6+6): the most H100s, but no node with 8
  cluster3    8 H100, 16 A100 (8+8), 8 L4

`

// legend explains the columns of the table.
const legend = `
The columns of the table in each step:
  CLUSTER      the worker cluster
  FREE H100    free H100 GPUs in the cluster
  ON ONE NODE  the most free H100 GPUs on a single node
  HEADROOM     score for free GPUs of all models: 0 (none) to 100 (64 or more)
  IDLE         score for idle GPUs: 0 (all busy) to 100 (all idle)
  TOTAL        mean of the two scores; -100 if the cluster has lost its fresh metrics
  OCM          "best" marks the cluster that OCM's Placement chooses
`

// notShown is printed below the tables of the embedded part.
const notShown = "      Not shown yet: Kueue, OCM and real API servers. This part plays the queue and the scheduler."

// fleetIntroduction is printed before the steps on the fleet.
const fleetIntroduction = `
Now the same on a fleet of real components: a hub and three workers with kube-apiserver,
Kueue with MultiKueue, OCM placement, Prometheus and Thanos, as processes on this machine.
`

// Queries of the table.
const (
	queryFree      = `cluster_resource_model:plimsoll_free_devices:sum{model="NVIDIA-H100-80GB-HBM3"}`
	queryOnOneNode = `cluster_resource_model:plimsoll_node_free_devices:max{model="NVIDIA-H100-80GB-HBM3"}`
)

// messageNoRoom is a part of the gate's message for a job with 8 GPUs on one node,
// if cluster2 has the best free node, with 6 GPUs.
const messageNoRoom = "cluster2 with 6"

// Titles of the steps in one process.
const (
	titleEmbeddedScores = "Metrics become scores: exporters, recording rules and a scoring policy"
	titleEmbeddedBurst  = "Submit 12 small jobs at once: the gate spreads them over the clusters that have room"
	titleEmbeddedWait   = "End them and submit 4 jobs with 8 H100 GPUs on one node each: the 4th waits and says why"
)

// Titles of the steps on the fleet.
const (
	titleInstall        = "Install Plimsoll: CRDs, RBAC roles, samples, the operator, and an exporter on each GPU node"
	titleScores         = "Metrics become scores: each cluster gets a score, and OCM chooses the best cluster"
	titleMetricChanges  = "A metric changes: the best cluster gets busy, its score drops, and OCM chooses another one"
	titleWholeNodes     = "Submit 3 jobs with 8 H100 GPUs on one node each: none goes to cluster2, which has no such node"
	titleWaitsForRoom   = "Submit a 4th such job: no cluster has room, so the job waits and says why; it starts when a job ends"
	titleBurst          = "End two big jobs and submit 12 small ones: they fill the best cluster first, then the others"
	titleOperatorKilled = "Kill and restart the operator: all jobs keep running where they are"
	titleLosesExporters = "Kill the exporters of the best cluster: OCM chooses another one, and running jobs stay"
)

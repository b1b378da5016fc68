package querycache

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// candidate is a cluster with what the gate's queries say about it for one workload.
type candidate struct {
	gate.Candidate
	// queue is the worker's ClusterQueue for the workload.
	queue string
}

// candidateOf returns the candidate of a cluster. Its Shapes are those of the workload's pod sets, in the order
// of the facts. SampledAt is zero if the time or the room is unknown.
func candidateOf(of gatestate.Cluster, results []queryResult, f *shape.Facts) gate.Candidate {
	cluster, c := of.Name, candidate{Candidate: of.Candidate()}
	c.Shapes = make([]gate.ShapeMetrics, len(f.PodSets))
	roomUnknown, exportsQuota := false, false
	for _, q := range results {
		n, found := q.result.values[cluster]
		switch q.Name {
		case gate.QueryKueueMetrics:
			exportsQuota = found && !q.result.lacks(cluster)
		case gate.QueryFit:
			roomUnknown = roomUnknown || q.result.values == nil || !n.Known && q.result.lacks(cluster)
		case gate.QueryLocalQueues:
			c.LocalQueues = q.result.localQueues[cluster]
		}
	}
	c.queue = c.ClusterQueue(ledger.QueueOf(f))
	for _, q := range results {
		c.add(q, cluster, exportsQuota)
	}
	if !roomUnknown {
		c.SampledAt = oldestSampleTime(cluster, results)
	}
	c.QuotaSampledAt = oldestQuotaTime(cluster, results)
	c.boundFit()
	return c.Candidate
}

// boundFit counts no more pods than the devices alone allow. Thanos reads the series of each selector of a query for itself:
// a node whose free devices a rule records at that moment can be missing where the query divides them, and be there where it
// selects the nodes, so that only CPU and memory limit its pods.
func (c *candidate) boundFit() {
	for i := range c.Shapes {
		if m := &c.Shapes[i]; m.DeviceFit.Known && m.DeviceFit.Value < m.Fit.Value {
			m.Fit = m.DeviceFit
		}
	}
}

// oldestQuotaTime returns the oldest sample time of a cluster's quota among the results for quota. It
// returns zero if that of any result is unknown.
func oldestQuotaTime(cluster string, results []queryResult) (oldest time.Time) {
	for _, q := range results {
		if !q.returnsQuota() {
			continue
		}
		if q.result.quotaTimes == nil {
			return time.Time{}
		}
		sampledAt := q.result.quotaTimes.sampleTimeOf(cluster)
		if sampledAt.IsZero() {
			return time.Time{}
		}
		oldest = earliest(sampledAt, oldest)
	}
	return oldest
}

// oldestSampleTime returns the oldest sample time of a cluster among the results that
// measure room. The first result holds the latest sample times.
func oldestSampleTime(cluster string, results []queryResult) time.Time {
	oldest := results[0].result.sampleTimeOf(cluster)
	for _, q := range results {
		if q.result.sampleTimes == nil {
			continue
		}
		if sampledAt := q.result.sampleTimes.sampleTimeOf(cluster); sampledAt.Before(oldest) {
			oldest = sampledAt
		}
	}
	return oldest
}

// numbers are the fields for queries whose values count as they are.
var numbers = map[string]func(*gate.ShapeMetrics) *gate.Number{
	gate.QueryFit:         func(m *gate.ShapeMetrics) *gate.Number { return &m.Fit },
	gate.QueryDeviceFit:   func(m *gate.ShapeMetrics) *gate.Number { return &m.DeviceFit },
	gate.QueryRequestFit:  func(m *gate.ShapeMetrics) *gate.Number { return &m.RequestFit },
	gate.QueryLargest:     func(m *gate.ShapeMetrics) *gate.Number { return &m.Largest },
	gate.QueryLargestNode: func(m *gate.ShapeMetrics) *gate.Number { return &m.LargestNode },
	gate.QueryHeadroom:    func(m *gate.ShapeMetrics) *gate.Number { return &m.Headroom },
	gate.QueryCapacity:    func(m *gate.ShapeMetrics) *gate.Number { return &m.Capacity },
}

// add adds the result of one query. exportsQuota is true if the cluster's Kueue exports
// quota metrics: then a queue without a series does not exist.
func (c *candidate) add(q queryResult, cluster string, exportsQuota bool) {
	if q.PerQueue {
		c.addPerQueue(q, cluster, exportsQuota)
		return
	}
	n := q.result.values[cluster]
	switch q.Name {
	case gate.QuerySampleTime, gate.QueryQuotaTime, gate.QueryKueueMetrics, gate.QueryLocalQueues:
	case gate.QueryEmptyFit:
		c.Shapes[q.podSet].EmptyFit, c.Shapes[q.podSet].EmptyFitUncertain = n, q.result.err != nil || q.result.lacks(cluster)
	case gate.QueryMeasured:
		c.Shapes[q.podSet].Measured = q.result.objectsOf(cluster)
	case gate.QueryPreference:
		c.Preference = n
	case gate.QueryExcess:
		c.Excess = n
	case gate.QueryQuota: // the gate's own
		c.Shapes[q.podSet].Quota, c.Shapes[q.podSet].QuotaFailed = n, q.result.values == nil
	default:
		if number := numbers[q.Name]; number != nil {
			*number(&c.Shapes[q.podSet]) = n
		} else if q.Prerequisite != "" {
			c.addPrerequisite(q, cluster)
		} else if !q.isFleetScoped() {
			c.Requirements = append(c.Requirements, q.result.clusterRequirement(q.Requirement, cluster))
		}
	}
}

// addPerQueue adds the result of a query per queue, of which the worker's queue for the workload counts.
func (c *candidate) addPerQueue(q queryResult, cluster string, exportsQuota bool) {
	n, found := q.result.valuesByQueue[c.queue][cluster]
	shape, hasSucceeded := &c.Shapes[q.podSet], q.result.valuesByQueue != nil
	switch q.Name {
	case gate.QueryQuota:
		shape.Quota = n
		shape.QueueMissing = exportsQuota && c.queue != "" && !found && hasSucceeded && !q.result.lacks(cluster)
	case gate.QueryQuotaLimit:
		if q.result.err == nil && !q.result.lacks(cluster) {
			shape.QuotaLimit = n
		}
	case gate.QueryCPUQuota:
		shape.CPUQuota = n
	case gate.QueryMemoryQuota:
		shape.MemoryQuota = n
	case gate.QueryNominalQuota:
		shape.NominalQuota = n
	case gate.QueryBorrowed:
		shape.Borrowed = q.result.queuesOf(cluster)
	}
	shape.QuotaFailed = shape.QuotaFailed || q.returnsQuota() && !hasSucceeded
}

// queuesOf returns the values of a cluster by ClusterQueue.
func (r *cachedResult) queuesOf(cluster string) map[string]gate.Number {
	queues := map[string]gate.Number{}
	for queue, values := range r.valuesByQueue {
		if n, found := values[cluster]; found {
			queues[queue] = n
		}
	}
	return queues
}

// objectsOf returns the objects of a cluster, and nil if the response lacks the cluster or no query succeeded yet.
func (r *cachedResult) objectsOf(cluster string) map[string]bool {
	switch objects := r.objects[cluster]; {
	case objects != nil:
		return objects
	case r.objects == nil || r.lacks(cluster):
		return nil
	}
	return map[string]bool{}
}

// addPrerequisite adds one of the two results for a prerequisite. The result for the objects
// comes first.
func (c *candidate) addPrerequisite(q queryResult, cluster string) {
	if q.ObjectLabel != "" {
		p := gate.PrerequisiteResult{Kind: q.Prerequisite, Names: q.result.objects[cluster]}
		if !q.result.lacks(cluster) {
			p.EvaluatedAt = q.result.succeededAt
		}
		c.Prerequisites = append(c.Prerequisites, p)
		return
	}
	p := &c.Prerequisites[len(c.Prerequisites)-1]
	p.Reported = q.result.values[cluster].Known && q.result.values[cluster].Value > 0
	if q.result.succeededAt.Before(p.EvaluatedAt) {
		p.EvaluatedAt = q.result.succeededAt
	}
}

// clusterRequirement returns a requirement of scope Cluster. If the response may lack some of the
// cluster's data, only the value 0 counts: it excludes the cluster. With another value or none, the
// requirement is partial since responses may lack the data.
func (r *cachedResult) clusterRequirement(of *v1alpha1.GateRequirement, cluster string) gate.RequirementResult {
	n, found := r.values[cluster]
	c := r.requirement(of, n)
	isWhole := found && r.lacksWholeClusters
	if r.lacks(cluster) && !isWhole && (!c.Known || c.Value != 0) {
		c.Partial, c.Number, c.EvaluatedAt = true, gate.Number{}, r.incompleteSince[""]
		if r.failedClusters != nil {
			c.EvaluatedAt = r.incompleteSince[cluster]
		}
	}
	return c
}

// requirement returns a requirement with the time of the last successful query. A value that
// is not a finite number counts as absent.
func (r *cachedResult) requirement(of *v1alpha1.GateRequirement, n gate.Number) gate.RequirementResult {
	c := gate.RequirementResult{Name: of.Name, AbsentMeets: of.Absent == v1alpha1.AbsentMet, EvaluatedAt: r.succeededAt}
	if n.Known {
		c.Number = n
	}
	return c
}

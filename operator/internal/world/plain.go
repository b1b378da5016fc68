package world

import (
	"math"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// What follows is for operators that read the world without its API server and metrics store.

// Objects are those of the hub.
func (w *World) Objects() hub.Store { return w.objects }

// Workloads are those of the hub.
func (w *World) Workloads() (list []*kueue.Workload) {
	for _, key := range w.kueue.workloads.keys() {
		list = append(list, w.kueue.workloads.get(key))
	}
	return list
}

// GateName is the name of the PlacementGate, and ConfigName that of its MultiKueueConfig.
func (*World) GateName() string { return gateName }

// ConfigName is the name of the MultiKueueConfig.
func (*World) ConfigName() string { return configName }

// Decided are the clusters of the gate's Placement.
func (w *World) Decided() []string { return w.ocm.decided }

// QueryTime is the time that the metrics store takes for the next query.
func (w *World) QueryTime() time.Duration { return w.queryTime("query") }

func (w *World) queryTime(subject string) time.Duration {
	mean := w.settings.QueryTime
	return time.Duration(float64(mean) * (0.2 + math.Min(6, -math.Log(1-w.dice.fraction(subject)))))
}

// Holders are the numbers of pods of owners that hold devices, as the exporters showed them at the last scrape. Pods
// that have gone since then are missing.
func (w *World) Holders(owners []ledger.Owner) ledger.Holders {
	holders := ledger.Holders{}
	for _, c := range w.clusters {
		if nodesFailed, _ := w.failedTargets(c); nodesFailed || !c.shown {
			continue
		}
		held := map[ledger.Owner]int64{}
		for _, owner := range owners {
			held[owner] = c.podsOf(owner)
		}
		holders[c.spec.Name] = held
	}
	return holders
}

// podsOf is the number of pods of a job that the last scrape shows.
func (c *cluster) podsOf(owner ledger.Owner) (n int64) {
	j := c.jobFor(key(&Job{Namespace: owner.Namespace, Name: owner.Name}))
	if j == nil || owner.Kind != string(KindJob) {
		return 0
	}
	for _, p := range j.pods {
		if p.node != nil && !p.boundAt.After(c.scrapedAt) {
			n++
		}
	}
	return n
}

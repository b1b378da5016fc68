package shadow

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// MaxWorkloads is the number of workloads in a report.
const MaxWorkloads = 100

// Outcomes in the order of reports.
var Outcomes = []v1alpha1.GateOutcome{v1alpha1.OutcomeSameCluster, v1alpha1.OutcomeOtherCluster, v1alpha1.OutcomeWait,
	v1alpha1.OutcomeNever, v1alpha1.OutcomeUndecided, v1alpha1.OutcomeUnplaced}

// Book has the passages of all gates. It is safe for concurrent use.
type Book struct {
	mu sync.Mutex
	// open passages by UID of the workload: it has neither started nor ended.
	open map[string]Passage
	// closed passages by the name of the gate, added up.
	closed map[string]sums
}

// sums of a gate, which may be deleted and made again with the same name and generation.
type sums struct {
	gate types.UID
	v1alpha1.GateShadow
}

// NewBook returns an empty book.
func NewBook() *Book {
	return &Book{open: map[string]Passage{}, closed: map[string]sums{}}
}

// Put replaces what is known of a workload's passage. It ends with the record of its outcome.
func (b *Book) Put(p Passage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.Would.Outcome == "" {
		b.open[p.UID] = p
	} else if _, isOpen := b.open[p.UID]; isOpen { // else it is counted already
		b.close(p)
	}
}

// Drop forgets a passage that nothing can be said of any more.
func (b *Book) Drop(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, uid)
}

// End ends the passage of a workload that lost its quota, finished or was deleted, if it has one. A workload that
// finished has started, as late as that.
func (b *Book) End(uid string, isFinished bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, isOpen := b.open[uid]
	if !isOpen {
		return
	}
	p.EndedAt = now
	if isFinished && p.StartedAt.IsZero() {
		p.StartedAt = cmp.Or(p.AdmittedAt, now)
	}
	b.close(p)
}

func (b *Book) close(p Passage) {
	delete(b.open, p.UID)
	r := b.closed[p.Gate]
	if p.Would.At.Before(r.Since.Time) {
		return
	}
	r.GateShadow = with(r.GateShadow, p, p.EndedAt)
	b.closed[p.Gate] = r
}

// with returns a report with one more passage.
func with(r v1alpha1.GateShadow, p Passage, now time.Time) v1alpha1.GateShadow {
	row := p.row(now)
	r.Outcomes = slices.Clone(r.Outcomes)
	i := slices.IndexFunc(r.Outcomes, func(o v1alpha1.ShadowOutcome) bool { return o.Outcome == row.Outcome })
	if i < 0 {
		i, r.Outcomes = len(r.Outcomes), append(r.Outcomes, v1alpha1.ShadowOutcome{Outcome: row.Outcome})
	}
	sum := &r.Outcomes[i]
	sum.Workloads++
	sum.WaitSeconds += row.WaitSeconds
	if row.HungSeconds > 0 {
		sum.Hung++
		sum.HungDeviceSeconds += row.HungSeconds * row.Devices
	}
	slices.SortFunc(r.Outcomes, func(a, b v1alpha1.ShadowOutcome) int {
		return cmp.Compare(slices.Index(Outcomes, a.Outcome), slices.Index(Outcomes, b.Outcome))
	})
	if row.Outcome != v1alpha1.OutcomeSameCluster || row.HungSeconds > 0 {
		r.Workloads = append(slices.Clone(r.Workloads), row)
		r.Workloads = r.Workloads[max(0, len(r.Workloads)-MaxWorkloads):]
	}
	return r
}

// Report returns the report of a gate, to be stored in its status: the stored one, and what happened since. A gate in
// mode Enforce keeps its last report.
func (b *Book) Report(pg *v1alpha1.PlacementGate, now time.Time) *v1alpha1.GateShadow {
	b.mu.Lock()
	defer b.mu.Unlock()
	if pg.Spec.Mode != v1alpha1.ModeShadow {
		delete(b.closed, pg.Name)
		return pg.Status.Shadow
	}
	begun := b.closed[pg.Name]
	report := begun.GateShadow
	switch stored := pg.Status.Shadow; {
	case begun.gate == pg.UID && report.Generation == pg.Generation:
	case stored != nil && stored.Generation == pg.Generation:
		report = added(*stored.DeepCopy(), report)
	default:
		report = v1alpha1.GateShadow{Generation: pg.Generation, Since: metav1.NewTime(now).Rfc3339Copy()}
	}
	b.closed[pg.Name] = sums{pg.UID, report}
	report = b.withHanging(pg.Name, report, now)
	return &report
}

// added returns a stored report with the passages that were closed before it was read.
func added(stored, since v1alpha1.GateShadow) v1alpha1.GateShadow {
	for _, more := range since.Outcomes {
		i := slices.IndexFunc(stored.Outcomes, func(o v1alpha1.ShadowOutcome) bool { return o.Outcome == more.Outcome })
		if i < 0 {
			stored.Outcomes = append(stored.Outcomes, more)
			continue
		}
		sum := &stored.Outcomes[i]
		sum.Workloads, sum.WaitSeconds = sum.Workloads+more.Workloads, sum.WaitSeconds+more.WaitSeconds
		sum.Hung, sum.HungDeviceSeconds = sum.Hung+more.Hung, sum.HungDeviceSeconds+more.HungDeviceSeconds
	}
	stored.Workloads = append(stored.Workloads, since.Workloads...)
	stored.Workloads = stored.Workloads[max(0, len(stored.Workloads)-MaxWorkloads):]
	return stored
}

// withHanging returns a report with the workloads that hang. Their times grow by whole minutes, so that the status of
// the gate is written once a minute.
func (b *Book) withHanging(gateName string, r v1alpha1.GateShadow, now time.Time) v1alpha1.GateShadow {
	r.Hanging, now = nil, now.Truncate(time.Minute)
	for _, p := range slices.SortedFunc(maps.Values(b.open), func(a, b Passage) int { return cmp.Or(a.Would.At.Compare(b.Would.At), cmp.Compare(a.UID, b.UID)) }) {
		isOf := p.Gate == gateName && !p.Would.At.Before(r.Since.Time)
		if isOf && p.hung(now) > 0 && len(r.Hanging) < MaxWorkloads {
			r.Hanging = append(r.Hanging, p.row(now))
		}
	}
	return r
}

// Reports returns the reports of all gates in mode Shadow, by gate.
func (b *Book) Reports(now time.Time) map[string]v1alpha1.GateShadow {
	b.mu.Lock()
	defer b.mu.Unlock()
	reports := map[string]v1alpha1.GateShadow{}
	for name, r := range b.closed {
		if r.Generation > 0 {
			reports[name] = b.withHanging(name, r.GateShadow, now)
		}
	}
	return reports
}

// Open is the number of workloads that have passed, and have neither started nor ended.
func (b *Book) Open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// Forget drops a gate that does not exist any more.
func (b *Book) Forget(gateName string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.closed, gateName)
}

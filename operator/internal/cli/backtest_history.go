package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/round"
)

const (
	// pointsAtOnce of one expression are asked for: some 30 MiB of answer.
	pointsAtOnce = 1_000_000
	// An expression is given up after so many failures at single times: a few when it
	// was never answered.
	mostFailures, mostFirst = 200, 10
)

// expression and the score that it is for.
type expression struct{ name, text string }

// history answers a round's questions from range queries, window by window: as many
// rounds as the source answers at once.
type history struct {
	source   *query.Client
	exprs    []expression
	over     span
	window   int // rounds to ask for at once
	until    int // rounds before it are loaded
	loaded   map[string]*recorded
	failures map[string][]failure // by expression's name
	answered map[string]bool      // by the same: with series
	notes    map[string]bool      // warnings that came with answers
	progress progress
}

// recorded is an expression's answer over a window.
type recorded struct {
	series []*track
	failed map[int64]error // by time in milliseconds
}

// track is a series, read from its beginning to its end.
type track struct {
	query.Series
	next int
}

type failure struct {
	at  time.Time
	err error
}

func newHistory(source *query.Client, exprs []expression, over span, clusters int, p progress) *history {
	return &history{
		source: source, exprs: exprs, over: over, window: min(query.MaxPointsPerSeries, max(pointsAtOnce/max(clusters, 1), 1)),
		failures: map[string][]failure{}, answered: map[string]bool{}, notes: map[string]bool{}, progress: p,
	}
}

// reach loads the window that begins with round i, unless it is loaded.
func (h *history) reach(ctx context.Context, i int) error {
	if i < h.until {
		return nil
	}
	n := min(h.window, h.over.rounds-i)
	h.progress.show("%d%% of %d rounds, asking from %s on", 100*i/h.over.rounds, h.over.rounds, moment(h.over.at(i)))
	h.loaded = map[string]*recorded{}
	for _, e := range h.exprs {
		r := &recorded{failed: map[int64]error{}}
		if err := h.load(ctx, e, r, i, n); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		h.loaded[e.text] = r
	}
	h.until = i + n
	return nil
}

// load n rounds of an expression from round i on. What is too much at once is asked
// in halves; what fails at one time is that round's failure, as it was the operator's.
func (h *history) load(ctx context.Context, e expression, into *recorded, i, n int) error {
	answer, err := h.source.Range(ctx, e.text, h.over.at(i), h.over.at(i+n-1), h.over.step)
	switch {
	case err == nil:
		h.answered[e.name] = h.answered[e.name] || len(answer.Series) > 0
		for _, s := range answer.Series {
			into.series = append(into.series, &track{Series: s})
		}
		for _, w := range answer.Warnings {
			h.notes[e.name+": "+w] = true
		}
		return nil
	case !query.CanSplitRange(err):
		return err
	case n > 1:
		h.window = min(h.window, (n+1)/2)
		if err := h.load(ctx, e, into, i, n/2); err != nil {
			return err
		}
		return h.load(ctx, e, into, i+n/2, n-n/2)
	}
	into.failed[h.over.at(i).UnixMilli()] = err
	failures := append(h.failures[e.name], failure{h.over.at(i), err})
	h.failures[e.name] = failures
	if n := len(failures); n > mostFailures || n > mostFirst && !h.answered[e.name] {
		return fmt.Errorf("it failed in %d rounds, first at %s: %w", n, moment(failures[0].at), failures[0].err)
	}
	return nil
}

// query is a query.QuerierFunc. Each expression must be asked for later times only.
func (h *history) query(_ context.Context, expr string, at time.Time) (query.Result, error) {
	r, ms := h.loaded[expr], at.UnixMilli()
	if err := r.failed[ms]; err != nil {
		return query.Result{}, err
	}
	var answer query.Result
	for _, s := range r.series {
		for s.next < len(s.Points) && s.Points[s.next].At < ms {
			s.next++
		}
		if s.next < len(s.Points) && s.Points[s.next].At == ms {
			answer.Samples = append(answer.Samples, query.Sample{Labels: s.Labels, Value: s.Points[s.next].Value})
		}
	}
	return answer, nil
}

// note what the mapping to clusters found wrong.
func (h *history) note(report *round.Report) {
	for _, s := range report.Scores {
		for _, w := range s.Warnings {
			h.notes[s.Name+": "+w] = true
		}
	}
}

// tell what came with the answers, and which rounds had none.
func (h *history) tell(w io.Writer) {
	for _, note := range slices.Sorted(maps.Keys(h.notes)) {
		_, _ = fmt.Fprintln(w, "warning:", note)
	}
	for _, name := range slices.Sorted(maps.Keys(h.failures)) {
		f := h.failures[name]
		_, _ = fmt.Fprintf(w, "warning: %s: failed in %s, first at %s: %v\n", name, count(len(f), "round"), moment(f[0].at), f[0].err)
	}
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

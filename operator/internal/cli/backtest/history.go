package backtest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
)

const (
	// pointsPerQuery limits the points of one range query, to about 30 MiB of response.
	pointsPerQuery = 1_000_000
	// A backtest fails if an expression fails at this many single times.
	maxFailures = 200
	// maxFailuresWithoutData replaces maxFailures while an expression has no data.
	maxFailuresWithoutData = 10
)

// expression is a PromQL expression and the name of its score.
type expression struct{ name, text string }

// rangeCache serves the instant queries of rounds from the results of range queries. It
// loads one window of rounds at a time.
type rangeCache struct {
	source   *query.Client
	exprs    []expression
	grid     timeGrid
	window   int // rounds per range query
	until    int // the first round that is not loaded
	windows  map[string]*loadedWindow
	failures map[string][]queryFailure // by name of the expression
	hasData  map[string]bool           // by name of the expression
	warnings map[string]bool
	progress command.ProgressLine
}

// loadedWindow holds the results of one expression for the loaded rounds.
type loadedWindow struct {
	series   []*seriesReader
	failures map[int64]error // by time in milliseconds
}

// seriesReader reads the points of a series in order of time.
type seriesReader struct {
	query.Series
	next int
}

// queryFailure is the failure of an expression at a single time.
type queryFailure struct {
	at  time.Time
	err error
}

func newRangeCache(source *query.Client, exprs []expression, grid timeGrid, clusters int, p command.ProgressLine) *rangeCache {
	return &rangeCache{
		source: source, exprs: exprs, grid: grid,
		window:   min(query.MaxPointsPerSeries, max(pointsPerQuery/max(clusters, 1), 1)),
		failures: map[string][]queryFailure{}, hasData: map[string]bool{}, warnings: map[string]bool{}, progress: p,
	}
}

// load loads the window that starts at round i, unless round i is already loaded.
func (c *rangeCache) load(ctx context.Context, i int) error {
	if i < c.until {
		return nil
	}
	n := min(c.window, c.grid.rounds-i)
	c.progress.Show("%d%% of %d rounds, querying metrics from %s on", 100*i/c.grid.rounds, c.grid.rounds, format.Time(c.grid.at(i)))
	c.windows = map[string]*loadedWindow{}
	for _, e := range c.exprs {
		w := &loadedWindow{failures: map[int64]error{}}
		if err := c.loadRounds(ctx, e, w, i, n); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		c.windows[e.text] = w
	}
	c.until = i + n
	return nil
}

// loadRounds loads n rounds of an expression, starting at round i. If the result is too
// large or can't be evaluated at some time, loadRounds splits the range in halves. A
// failure at a single time is a failure of that round only, as in the operator.
func (c *rangeCache) loadRounds(ctx context.Context, e expression, into *loadedWindow, i, n int) error {
	result, err := c.source.Range(ctx, e.text, c.grid.at(i), c.grid.at(i+n-1), c.grid.step)
	switch {
	case err == nil:
		c.hasData[e.name] = c.hasData[e.name] || len(result.Series) > 0
		for _, s := range result.Series {
			into.series = append(into.series, &seriesReader{Series: s})
		}
		for _, w := range result.Warnings {
			c.warnings[e.name+": "+w] = true
		}
		return nil
	case !query.CanSplitRange(err):
		return err
	case n > 1:
		c.window = min(c.window, (n+1)/2)
		if err := c.loadRounds(ctx, e, into, i, n/2); err != nil {
			return err
		}
		return c.loadRounds(ctx, e, into, i+n/2, n-n/2)
	}
	into.failures[c.grid.at(i).UnixMilli()] = err
	failures := append(c.failures[e.name], queryFailure{c.grid.at(i), err})
	c.failures[e.name] = failures
	if n := len(failures); n > maxFailures || n > maxFailuresWithoutData && !c.hasData[e.name] {
		return fmt.Errorf("the query failed in %d rounds, first at %s: %w", n, format.Time(failures[0].at), failures[0].err)
	}
	return nil
}

// query implements query.QuerierFunc. The times of an expression must not decrease.
func (c *rangeCache) query(_ context.Context, expr string, at time.Time) (query.Result, error) {
	w, ms := c.windows[expr], at.UnixMilli()
	if err := w.failures[ms]; err != nil {
		return query.Result{}, err
	}
	var result query.Result
	for _, s := range w.series {
		for s.next < len(s.Points) && s.Points[s.next].At < ms {
			s.next++
		}
		if s.next < len(s.Points) && s.Points[s.next].At == ms {
			result.Samples = append(result.Samples, query.Sample{Labels: s.Labels, Value: s.Points[s.next].Value})
		}
	}
	return result, nil
}

// addWarnings records the warnings of a round, such as series without the cluster label.
func (c *rangeCache) addWarnings(report *round.Report) {
	for _, s := range report.Scores {
		for _, w := range s.Warnings {
			c.warnings[s.Name+": "+w] = true
		}
	}
}

// writeWarnings writes all distinct warnings and the rounds in which queries failed.
func (c *rangeCache) writeWarnings(w io.Writer) {
	for _, warning := range slices.Sorted(maps.Keys(c.warnings)) {
		_, _ = fmt.Fprintln(w, "warning:", warning)
	}
	for _, name := range slices.Sorted(maps.Keys(c.failures)) {
		f := c.failures[name]
		_, _ = fmt.Fprintf(w, "warning: %s: the query failed in %s, first at %s: %v\n", name, format.Plural(len(f), "round"), format.Time(f[0].at), f[0].err)
	}
}

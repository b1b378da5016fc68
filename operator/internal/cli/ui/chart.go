package ui

import (
	"fmt"
	"math"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Size of a chart, in units of its view box, and the time between two points.
const (
	chartWidth, chartHeight = 192, 32
	chartStep               = 15 * time.Minute
)

// chart is a line of the last day. A gap in the series is a gap of the line.
type chart struct {
	// Lines has the points of each part without a gap, for a polyline of SVG.
	Lines []string
	// Label describes the chart in words.
	Label  string
	points []query.Point
	end    time.Time
}

// newChart draws scores from -100 to 100 of the day before end.
func newChart(points []query.Point, end time.Time) *chart {
	c := &chart{points: points, end: end}
	var line []string
	close := func() {
		if len(line) == 1 {
			line = append(line, line[0]) // a dot
		}
		if len(line) > 0 {
			c.Lines = append(c.Lines, strings.Join(line, " "))
		}
		line = nil
	}
	for i, p := range points {
		if i > 0 && p.At-points[i-1].At > chartStep.Milliseconds() {
			close()
		}
		age := end.Sub(time.UnixMilli(p.At))
		x := chartWidth * (1 - float64(age)/float64(24*time.Hour))
		y := chartHeight * (1 - (p.Value+100)/200)
		line = append(line, fmt.Sprintf("%.1f,%.1f", min(max(x, 0), chartWidth), min(max(y, 0), chartHeight)))
	}
	close()
	c.Label = fmt.Sprintf("from %s to %s, now %s", c.lowest(), c.highest(), c.now())
	return c
}

// now is the latest value, unless it is too old.
func (c *chart) now() string {
	if n := len(c.points); n > 0 && c.end.Sub(time.UnixMilli(c.points[n-1].At)) <= 2*chartStep {
		return format.Decimal(c.points[n-1].Value)
	}
	return format.Unknown
}

func (c *chart) lowest() string { return c.extreme(math.Min) }

func (c *chart) highest() string { return c.extreme(math.Max) }

func (c *chart) extreme(of func(a, b float64) float64) string {
	if len(c.points) == 0 {
		return format.Unknown
	}
	value := c.points[0].Value
	for _, p := range c.points {
		value = of(value, p.Value)
	}
	return format.Decimal(value)
}

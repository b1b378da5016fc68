package query

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strconv"
)

// instantElement reads an element of the result of an instant query: a series of a vector
// or matrix, or one half of the scalar [time, "value"].
func (d *decoder) instantElement() {
	if d.peek() == '{' {
		d.seriesElement()
		return
	}
	switch d.scalarParts++; {
	case d.scalarParts == 1:
		if _, ok := d.time(); !ok {
			d.badValue = malformedValue
		}
	case d.scalarParts == 2 && d.peek() == '"':
		if v, ok := d.value(); ok {
			d.samples = append(d.samples, Sample{Cluster: d.cluster, Value: v})
		}
	default:
		d.skip()
		d.badValue = malformedValue
	}
}

// seriesElement reads {"metric": ..., "value" or "values": ...}. A native histogram has
// neither and is ignored: it has no single number to score.
func (d *decoder) seriesElement() {
	d.countSeries()
	var (
		sample Sample
		points []Point
		// The keys that the series has.
		hasMetric, hasValue, hasHistogram, found bool
	)
	if d.peek() != '{' {
		d.fail(errBadJSON)
		return
	}
	d.object(func(key []byte) {
		switch string(key) {
		case "metric":
			d.requireFirst(hasMetric)
			hasMetric = true
			d.labels(&sample)
		case "value":
			d.requireFirst(hasValue)
			hasValue = true
			var point Point
			if point, found = d.point(); found {
				sample.Value = point.Value
			}
		case "histogram":
			hasHistogram = true
			d.histograms++
			d.skip()
		case "values":
			d.array(func() {
				if p, ok := d.point(); ok {
					points = append(points, p)
					d.grow(32)
				}
			})
		default:
			d.skip()
		}
	})
	if d.cluster != "" {
		sample.Cluster = d.cluster
		if sample.Labels != nil {
			sample.Labels[d.clusterLabel] = d.cluster
		}
	}
	switch {
	case found:
		d.samples = append(d.samples, sample)
	case !d.isRange && !hasValue && !hasHistogram:
		d.badValue = "is missing"
	}
	if d.isRange {
		d.matrix = append(d.matrix, Series{Labels: sample.Labels, Points: points})
	}
}

func (d *decoder) countSeries() {
	if d.series++; d.series > d.maxSeries {
		d.stop(&Error{
			Reason: ReasonTooLarge, Status: http.StatusOK,
			Message: fmt.Sprintf("the result has more than %d series, the limit of advanced.maxSeries: aggregate the query or raise the limit", d.maxSeries),
		})
	}
	d.grow(sampleBytes)
}

// labels reads the labels of a series. Only the first samples keep labels other than that
// of the cluster, unless allLabels is set.
func (d *decoder) labels(sample *Sample) {
	if d.allLabels || d.series <= completeSamples {
		sample.Labels = map[string]string{}
	}
	hasCluster, count := false, 0
	d.object(func(key []byte) {
		if count++; count > maxLabels {
			d.stop(&Error{
				Reason: ReasonTooLarge, Status: http.StatusOK,
				Message: fmt.Sprintf("a series of the result has more than %d labels: aggregate the query", maxLabels),
			})
		}
		isCluster := string(key) == d.clusterLabel
		if !isCluster && sample.Labels == nil {
			d.skip()
			return
		}
		name := d.clusterLabel
		if !isCluster {
			name = d.name(key)
		}
		value := d.textOrSkip()
		d.grow(len(value))
		if isCluster {
			d.requireFirst(hasCluster)
			hasCluster, sample.Cluster = true, value
		}
		if sample.Labels != nil {
			_, isRepeated := sample.Labels[name]
			d.requireFirst(isRepeated)
			sample.Labels[name] = value
			d.grow(labelBytes)
		}
	})
}

// name returns the text of a label name. Each name is in memory once.
func (d *decoder) name(key []byte) string {
	if name, ok := d.names[string(key)]; ok {
		return name
	}
	if d.names == nil {
		d.names = map[string]string{}
	}
	name := printable(key)
	if len(d.names) < 1000 {
		d.names[string(key)] = name
	}
	return name
}

// malformedValue is what is wrong with a value that has another form.
const malformedValue = "must be [time, \"value\"]"

// point reads [time, "value"]. ok is false if it is something else.
func (d *decoder) point() (p Point, ok bool) {
	if d.peek() != '[' {
		d.skip()
		d.badValue = malformedValue
		return Point{}, false
	}
	n, valid := 0, true
	d.array(func() {
		switch n++; {
		case n == 1:
			p.At, ok = d.time()
			valid = valid && ok
		case n == 2 && d.peek() == '"':
			p.Value, ok = d.value()
			valid = valid && ok
		default:
			d.skip()
			valid = false
		}
	})
	if n != 2 || !valid {
		d.badValue = cmp.Or(d.badValue, malformedValue)
		return Point{}, false
	}
	return p, true
}

// time reads a time in seconds since the Unix epoch, and returns it in milliseconds.
func (d *decoder) time() (milliseconds int64, ok bool) {
	if c := d.peek(); c == '"' || c == '[' || c == '{' {
		d.skip()
		return 0, false
	}
	at, err := strconv.ParseFloat(string(d.token()), 64)
	return int64(at*1000 + 0.5), err == nil
}

// value reads a decimal number in a string. A longer text than the scanner keeps is refused: the
// exponent may be missing.
func (d *decoder) value() (v float64, ok bool) {
	text := d.text()
	v, err := strconv.ParseFloat(string(text), 64)
	ok = err == nil && len(text) < d.maxText && !bytes.ContainsAny(text, "xX")
	if !ok && d.err == nil {
		d.badValue = "must be a number"
	}
	return v, ok
}

package collector

import (
	"bytes"
	"compress/gzip"
	"errors"
	"slices"
	"sync"

	dto "github.com/prometheus/client_model/go"
)

// exposition is the content of /metrics. It never changes. Each encoding is produced at
// its first scrape and reused by later scrapes.
type exposition struct {
	collected []*family // of the devices, from the last accounting
	current   []*family // state of the sources
	encoded   map[encodingKey]func() []byte
}

// encodingKey identifies an encoding of an exposition.
type encodingKey struct {
	format  *textFormat
	gzipped bool
}

// store replaces the exposition. The metrics of the exporter process are read at the
// first scrape. The caller holds the lock.
func (c *Collector) store(collected []*family) {
	e := &exposition{collected: collected, current: c.renderSources(), encoded: map[encodingKey]func() []byte{}}
	gather := sync.OnceValues(c.cfg.Own.Gather)
	for _, f := range []*textFormat{plainText, openMetrics} {
		plain := sync.OnceValue(func() []byte {
			var b bytes.Buffer
			e.write(&b, f)
			if err := f.writeRegistry(&b, gather); err != nil {
				c.cfg.Log.Warn("the exporter's own metrics are incomplete", "err", err)
			}
			return b.Bytes()
		})
		e.encoded[encodingKey{f, false}] = plain
		e.encoded[encodingKey{f, true}] = sync.OnceValue(func() []byte { return compress(plain()) })
	}
	c.exposition.Store(e)
}

// renderSources writes the metrics that do not depend on a successful collection.
func (c *Collector) renderSources() []*family {
	out := familySet{}
	out.add(driverStalled, boolValue(slices.ContainsFunc(c.vendors, func(v *vendor) bool { return v.stalled.Load() })), c.cfg.Node)
	for _, v := range c.vendors {
		if v.Name != "" {
			out.add(sourceUp, boolValue(v.up.Load()), c.cfg.Node, v.Name)
			out.add(collectionErrors, v.errors, c.cfg.Node, v.Name)
			out.add(collectionDuration, v.took.Seconds(), c.cfg.Node, v.Name)
		}
	}
	if ok, err := c.kubeletError(); ok {
		out.add(kubeletUp, boolValue(err == nil), c.cfg.Node)
	}
	return out.sorted()
}

func (e *exposition) write(b *bytes.Buffer, f *textFormat) {
	b.Grow(estimateSize(e.collected) + 16<<10)
	f.write(b, e.collected)
	f.write(b, e.current)
}

// writeRegistry writes the metrics of a registry and the end of the exposition. If the
// registry returns an error, writeRegistry writes the metrics that it can get.
func (tf *textFormat) writeRegistry(b *bytes.Buffer, gather func() ([]*dto.MetricFamily, error)) error {
	families, err := gather()
	for _, f := range families {
		_, writeErr := tf.writeGathered(b, f)
		err = errors.Join(err, writeErr)
	}
	b.WriteString(tf.end)
	return err
}

var gzipWriters = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // BestSpeed is a valid level
	}
	return w
}}

func compress(text []byte) []byte {
	var b bytes.Buffer
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	w.Reset(&b)
	_, err := w.Write(text)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // writing to a bytes.Buffer cannot fail
	}
	return b.Bytes()
}

package collector

import (
	"bytes"
	"compress/gzip"
	"errors"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// snapshot never changes once it is stored. Each of its forms is made when it is
// first asked for, and handed to every further scrape.
type snapshot struct {
	at        time.Time
	collected []*family
	now       []*family // what can be told without a collection
	forms     map[form]func() []byte
}

// form in which a snapshot is served.
type form struct {
	dialect *dialect
	gzipped bool
}

// store what was collected, now or before, for scrapes. The process's own metrics are
// as of the first scrape. The caller holds the lock.
func (c *Collector) store(at time.Time, collected []*family) {
	now := page{}
	now.own(driverStalled, flag(slices.ContainsFunc(c.vendors, func(v *vendor) bool { return v.stalled.Load() })), c.cfg.Node)
	c.renderSources(now)
	s := &snapshot{at: at, collected: collected, now: now.families(), forms: map[form]func() []byte{}}
	own := sync.OnceValues(c.cfg.Own.Gather)
	for _, d := range []*dialect{plainText, openMetrics} {
		plain := sync.OnceValue(func() []byte {
			var b bytes.Buffer
			s.write(&b, d)
			if err := d.writeOwn(&b, own); err != nil {
				c.cfg.Log.Warn("the exporter's own metrics are not complete", "err", err)
			}
			return b.Bytes()
		})
		s.forms[form{d, false}] = plain
		s.forms[form{d, true}] = sync.OnceValue(func() []byte { return compress(plain()) })
	}
	c.snapshot.Store(s)
}

// again stores what was last collected, with what is to be told now.
func (c *Collector) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.snapshot.Load()
	c.store(last.at, last.collected)
}

func (s *snapshot) write(b *bytes.Buffer, d *dialect) {
	b.Grow(size(s.collected) + 16<<10)
	d.write(b, s.collected)
	d.write(b, s.now)
}

// writeOwn writes what a registry has. Where some of it can't be had the rest is.
func (d *dialect) writeOwn(b *bytes.Buffer, gather func() ([]*dto.MetricFamily, error)) error {
	families, err := gather()
	for _, f := range families {
		_, failed := d.foreign(b, f)
		err = errors.Join(err, failed)
	}
	b.WriteString(d.end)
	return err
}

var compressors = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // there is such a level
	}
	return w
}}

func compress(text []byte) []byte {
	var b bytes.Buffer
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	w.Reset(&b)
	_, err := w.Write(text)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // a buffer takes everything
	}
	return b.Bytes()
}

package query

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"regexp"
	"slices"
)

// maxAnnotations is the number of warnings and of infos that are kept of a response.
const maxAnnotations = 10

// annotations are the first warnings or infos of a response, and the number of all.
type annotations struct {
	texts []string
	count int
}

func (a *annotations) add(text string) {
	a.texts = append(a.texts, text)
	a.count++
}

func (a annotations) list() []string {
	if a.count > len(a.texts) {
		return append(a.texts, fmt.Sprintf("and %d more", a.count-len(a.texts)))
	}
	return a.texts
}

// annotations reads a list of texts, of which it keeps the first ones. visit is called with
// each text, or with nil for an element that is no text.
func (d *decoder) annotations(a *annotations, visit func(text []byte)) {
	if d.peek() != '[' {
		d.skip()
		return
	}
	d.array(func() {
		if d.peek() != '"' {
			d.skip()
			a.count++
			visit(nil)
			return
		}
		text := d.messageText()
		visit(text)
		if len(a.texts) < maxAnnotations {
			a.add(shortened(text, maxMessageBytes))
		} else {
			a.count++
		}
	})
}

// readWarnings reads the warnings. A warning about data that is missing makes the response
// partial:
//
//   - Thanos warns about stores that do not respond, and about a query that no store matches.
//   - Prometheus warns about remote storage that does not respond.
//
// Other warnings are about the query. Prometheus's engine marks them.
func (d *decoder) readWarnings() {
	if c := d.peek(); c != '[' && c != 'n' { // null is a list without elements
		d.skip()
		d.lacksData([]byte("warnings that are no list"))
		return
	}
	d.annotations(&d.warnings, func(text []byte) {
		switch {
		case len(text) == 0:
			d.lacksData([]byte("a warning without text"))
		case !isAboutQuery(text):
			d.lacksData(text)
		}
	})
}

// omitted matches the warning by which Prometheus says how many others it left out.
var omitted = regexp.MustCompile(`^[0-9]+ more (warning |info )?annotations omitted$`)

// isAboutQuery reports whether Prometheus's engine wrote a warning. Thanos passes its infos on as
// warnings.
func isAboutQuery(text []byte) bool {
	return bytes.HasPrefix(text, []byte("PromQL warning")) || bytes.HasPrefix(text, []byte("PromQL info")) || omitted.Match(text)
}

// gapSeed is the seed of the hashes in Result.Gaps.
var gapSeed = maphash.MakeSeed()

// gapBytes is the approximate size of a gap in memory.
const gapBytes = 48

// lacksData records why the response is partial. Of several reasons it keeps the first in
// alphabetical order, because their order is random.
func (d *decoder) lacksData(reason []byte) {
	text := reason
	if bytes.Contains(text, []byte("->")) { // a hostile response has millions of warnings
		text = localAddress.ReplaceAll(text, nil)
	}
	gap := maphash.Bytes(gapSeed, text)
	if d.gaps == nil {
		d.gaps = map[uint64]bool{}
	}
	if !d.gaps[gap] {
		d.grow(gapBytes)
		d.gaps[gap] = true
	}
	if len(d.partialReason) == 0 || bytes.Compare(reason, d.partialReason) < 0 {
		d.partialReason = append(d.partialReason[:0], reason...)
	}
}

// partialMark is the reason of a response with isPartial.
const partialMark = "the source marks the response as partial (isPartial)"

// readPartialMark reads the field by which a cluster of VictoriaMetrics reports that some of its
// nodes do not respond.
func (d *decoder) readPartialMark() {
	c := d.peek()
	d.skip()
	if isComplete := c == 'f' || c == 'n'; isComplete { // false or null
		return
	}
	if d.err == nil && !slices.Contains(d.warnings.texts, partialMark) {
		d.lacksData([]byte(partialMark))
		d.warnings.add(partialMark)
	}
}

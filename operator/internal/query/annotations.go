package query

import (
	"bytes"
	"fmt"
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
		switch {
		case d.peek() != '"':
			d.skip()
			a.count++
			visit(nil)
		case len(a.texts) >= maxAnnotations:
			visit(d.text())
			a.count++
		default:
			text := d.message()
			visit([]byte(text))
			a.add(text)
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
	d.annotations(&d.warnings, func(text []byte) { d.partial = d.partial || !isAboutQuery(text) })
}

// isAboutQuery reports whether Prometheus's engine wrote a warning. Thanos passes its infos on as
// warnings.
func isAboutQuery(text []byte) bool {
	return bytes.HasPrefix(text, []byte("PromQL warning")) || bytes.HasPrefix(text, []byte("PromQL info"))
}

// readPartialMark reads the field by which a cluster of VictoriaMetrics reports that some of its
// nodes do not respond.
func (d *decoder) readPartialMark() {
	if d.peek() != 't' {
		d.skip()
		return
	}
	if d.token(); d.err == nil {
		d.partial = true
		d.warnings.add("the source marks the response as partial (isPartial)")
	}
}

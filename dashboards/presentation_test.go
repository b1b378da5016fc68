package dashboards

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Widths in pixels that show a model and the part of a UUID that differs between devices.
var minWidths = map[string]int{"model": 170, "uuid": 200}

const minWidthOfGPUModel = 215

// lintPresentation checks that a panel can be read: names and colors of series, widths of
// columns, and values that are missing.
func lintPresentation(p *panel, report func(string, ...any)) {
	d := p.FieldConfig.Defaults
	if unit := d.Unit; unit == "ops" || unit == "reqps" || unit == "rps" || unit == "wps" || unit == "cps" {
		report("panel %q counts by second: use the unit cpm and multiply by 60", p.Title)
	}
	lintMissingValues(p, report)
	if p.Type == "timeseries" {
		if d.Color.Mode != "palette-classic-by-name" {
			report("panel %q must have colors by name (palette-classic-by-name), so that a cluster has the same color everywhere", p.Title)
		}
		if l := p.Options.Legend; l.DisplayMode != "table" || !slices.Equal(l.Calcs, []string{"lastNotNull", "max"}) {
			report("panel %q must have a legend as table with lastNotNull and max", p.Title)
		}
		if d.Unit == "percentunit" && d.Max == nil && d.Custom.AxisSoftMax == nil {
			report("panel %q must have max or axisSoftMax: if all values are 0, its axis ends at 10000%%", p.Title)
		}
	}
	for _, t := range p.Targets {
		if !t.Instant && topWithoutEnd(t.Expr) {
			report("panel %q shows the largest of each step, which can be many series: select them with topk(…, … @ end())", p.Title)
		}
		if t.LegendFormat == "{{cluster}}" && (len(p.Transformations) == 0 || p.Transformations[0].ID != "renameByRegex") && !onHub(t.Expr) {
			report("panel %q has no name for series without the label cluster: add renameByRegex", p.Title)
		}
	}
	for _, o := range p.FieldConfig.Overrides {
		lintWidth(p, o, report)
	}
}

// onHub reports whether a query reads the operator's metrics about clusters, which always
// have the label cluster.
func onHub(expr string) bool {
	return regexp.MustCompile(`plimsoll_(score|gate)_`).MatchString(expr) || strings.Contains(expr, "plimsoll_score{")
}

var top = regexp.MustCompile(`\b(?:topk|bottomk)\(`)

func topWithoutEnd(expr string) bool {
	return top.MatchString(expr) && !strings.Contains(expr, "@ end()")
}

// lintMissingValues checks that a missing value does not look like 0 or like a good value.
func lintMissingValues(p *panel, report func(string, ...any)) {
	d := p.FieldConfig.Defaults
	if d.NoValue == "" {
		report("panel %q must say with noValue what a missing value means", p.Title)
	}
	all := []thresholds{d.Thresholds}
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			var t thresholds
			if property.ID == "thresholds" && json.Unmarshal(property.Value, &t) == nil {
				all = append(all, t)
			}
			if property.ID == "mappings" && !strings.Contains(string(property.Value), `"null+nan"`) && strings.Contains(string(property.Value), `"green"`) {
				report("panel %q: a column with green values must map null+nan to a neutral color", p.Title)
			}
		}
	}
	for _, t := range all {
		if len(t.Steps) > 0 && t.Steps[0].Color == "green" {
			report("panel %q shows a missing value in green, the color of the first threshold", p.Title)
		}
	}
	if p.Type != "stat" && p.Type != "table" {
		return
	}
	hasMapping := slices.ContainsFunc(d.Mappings, func(m mapping) bool {
		return m.Type == "special" && strings.Contains(string(m.Options), `"null+nan"`)
	})
	if !hasMapping {
		report("panel %q must map null+nan to a text in a neutral color", p.Title)
	}
}

func lintWidth(p *panel, o override, report func(string, ...any)) {
	column, _ := o.Matcher.Options.(string)
	want, limited := minWidths[column]
	if !limited {
		return
	}
	if column == "model" && !strings.Contains(p.Title, "Chips") {
		want = minWidthOfGPUModel
	}
	for _, property := range o.Properties {
		if property.ID != "custom.width" && property.ID != "custom.minWidth" {
			continue
		}
		var width int
		if err := json.Unmarshal(property.Value, &width); err != nil || width < want {
			report("panel %q: the column %s has %d pixels, needs %d for NVIDIA-H100-80GB-HBM3 or a UUID", p.Title, column, width, want)
		}
	}
}

var (
	linkedBoard    = regexp.MustCompile(`^/d/plimsoll-(\w+)\?`)
	linkedVariable = regexp.MustCompile(`[?&](var-\w+)=`)
)

// lintLinks checks that links to other dashboards exist and keep data source and time.
func lintLinks(boards map[string]*dashboard, p *panel, report func(string, ...any)) {
	links := slices.Clone(p.FieldConfig.Defaults.Links)
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			var more []dataLink
			if property.ID == "links" && json.Unmarshal(property.Value, &more) == nil {
				links = append(links, more...)
			}
		}
	}
	for _, l := range links {
		m := linkedBoard.FindStringSubmatch(l.URL)
		if m == nil {
			if !strings.HasPrefix(l.URL, "https://plimsoll.dev/runbooks/") {
				report("panel %q links to %s, which is no dashboard", p.Title, l.URL)
			}
			continue
		}
		for _, keep := range []string{"${__url_time_range}", "${datasource:queryparam}"} {
			if !strings.Contains(l.URL, keep) {
				report("panel %q: the link %s must keep %s", p.Title, l.URL, keep)
			}
		}
		target, exists := boards[m[1]+".json"]
		if !exists {
			report("panel %q links to the unknown dashboard plimsoll-%s", p.Title, m[1])
			continue
		}
		for _, v := range linkedVariable.FindAllStringSubmatch(l.URL, -1) {
			if !slices.ContainsFunc(target.Templating.List, func(have variable) bool { return "var-"+have.Name == v[1] }) {
				report("panel %q: the link %s sets %s, which %s does not have", p.Title, l.URL, v[1], m[1])
			}
		}
	}
}

// lintRepetition checks that no two panels show the same.
func lintRepetition(b *dashboard, report func(string, ...any)) {
	seen := map[string]string{}
	for _, p := range b.flat() {
		for _, t := range p.Targets {
			key := fmt.Sprint(t.Instant, p.Type == "table", t.Expr)
			if other, again := seen[key]; again && other != p.Title {
				report("panel %q repeats a query of panel %q", p.Title, other)
			}
			seen[key] = p.Title
		}
	}
}

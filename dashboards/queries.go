// Package dashboards holds Plimsoll's Grafana dashboards. It returns every query of
// their panels in a form that Prometheus can evaluate.
package dashboards

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
)

//go:embed *.json
var files embed.FS

// Query of a panel or of a variable.
type Query struct {
	// Dashboard is the file's name.
	Dashboard string
	// Panel is the panel's title, "annotation NAME" or "variable NAME".
	Panel string
	// Raw is PromQL as Grafana shows it, with variables.
	Raw string
	// Expr is PromQL with each variable set as Grafana does for "All", and a rate
	// interval of one minute.
	Expr string
}

type dashboard struct {
	UID           string  `json:"uid"`
	Title         string  `json:"title"`
	SchemaVersion int     `json:"schemaVersion"`
	Editable      bool    `json:"editable"`
	Panels        []panel `json:"panels"`
	Annotations   struct {
		List []annotation `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []variable `json:"list"`
	} `json:"templating"`
}

type annotation struct {
	Name       string     `json:"name"`
	Datasource datasource `json:"datasource"`
	Expr       string     `json:"expr"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  datasource `json:"datasource"`
	Panels      []panel    `json:"panels"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults  fieldOptions `json:"defaults"`
		Overrides []override   `json:"overrides"`
	} `json:"fieldConfig"`
	Targets         []target `json:"targets"`
	Transformations []struct {
		ID string `json:"id"`
	} `json:"transformations"`
	Options struct {
		Legend struct {
			DisplayMode string   `json:"displayMode"`
			Calcs       []string `json:"calcs"`
		} `json:"legend"`
	} `json:"options"`
}

type target struct {
	RefID        string     `json:"refId"`
	Datasource   datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	Instant      bool       `json:"instant"`
}

type fieldOptions struct {
	Unit    string `json:"unit"`
	NoValue string `json:"noValue"`
	Color   struct {
		Mode string `json:"mode"`
	} `json:"color"`
	Max    *float64 `json:"max"`
	Custom struct {
		AxisSoftMax *float64 `json:"axisSoftMax"`
	} `json:"custom"`
	Thresholds thresholds `json:"thresholds"`
	Mappings   []mapping  `json:"mappings"`
	Links      []dataLink `json:"links"`
}

type thresholds struct {
	Steps []struct {
		Color string `json:"color"`
	} `json:"steps"`
}

type mapping struct {
	Type    string          `json:"type"`
	Options json.RawMessage `json:"options"`
}

type dataLink struct {
	URL string `json:"url"`
}

type override struct {
	Matcher struct {
		Options any `json:"options"`
	} `json:"matcher"`
	Properties []struct {
		ID    string          `json:"id"`
		Value json.RawMessage `json:"value"`
	} `json:"properties"`
}

type variable struct {
	Name       string     `json:"name"`
	Type       string     `json:"type"`
	Datasource datasource `json:"datasource"`
	IncludeAll bool       `json:"includeAll"`
	AllValue   string     `json:"allValue"`
	Current    struct {
		// Value is a list if several can be selected.
		Value any `json:"value"`
	} `json:"current"`
	Definition string `json:"definition"`
}

// Queries of all dashboards, panels before variables. The error names the file.
func Queries() ([]Query, error) {
	boards, err := load(files)
	if err != nil {
		return nil, err
	}
	var all []Query
	for _, name := range slices.Sorted(maps.Keys(boards)) {
		b := boards[name]
		values := b.values()
		for _, p := range b.flat() {
			for _, t := range p.Targets {
				all = append(all, Query{Dashboard: name, Panel: p.Title, Raw: t.Expr, Expr: substitute(t.Expr, values)})
			}
		}
		for _, a := range b.Annotations.List {
			all = append(all, Query{Dashboard: name, Panel: "annotation " + a.Name, Raw: a.Expr, Expr: substitute(a.Expr, values)})
		}
		for _, v := range b.Templating.List {
			if v.Type != "query" {
				continue
			}
			expr, err := labelValues(v.Definition)
			if err != nil {
				return nil, fmt.Errorf("%s: variable %s: %w", name, v.Name, err)
			}
			all = append(all, Query{Dashboard: name, Panel: "variable " + v.Name, Raw: expr, Expr: substitute(expr, values)})
		}
	}
	return all, nil
}

func load(from fs.FS) (map[string]*dashboard, error) {
	names, err := fs.Glob(from, "*.json")
	if err != nil {
		return nil, err
	}
	boards := map[string]*dashboard{}
	for _, name := range names {
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		b := &dashboard{}
		if err := json.Unmarshal(content, b); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		boards[name] = b
	}
	return boards, nil
}

// flat lists panels with those inside rows.
func (b *dashboard) flat() []panel {
	var all []panel
	for _, p := range b.Panels {
		if p.Type != "row" {
			all = append(all, p)
		}
		all = append(all, p.Panels...)
	}
	return all
}

// values that stand for the variables: Grafana's own, "All" of those that have it, and
// the preset value of the others.
func (b *dashboard) values() map[string]string {
	values := map[string]string{"__rate_interval": "1m", "__interval": "15s", "__range": "1h"}
	for _, v := range b.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		if v.IncludeAll {
			values[v.Name] = v.AllValue
		} else if value, ok := v.Current.Value.(string); ok {
			values[v.Name] = value
		}
	}
	return values
}

var variableName = regexp.MustCompile(`\$(?:\{(\w+)(?::\w+)?\}|(\w+))`)

// substitute sets variables that have a value, and leaves others for the parser
// to stumble over.
func substitute(expr string, values map[string]string) string {
	return variableName.ReplaceAllStringFunc(expr, func(found string) string {
		name := strings.Trim(strings.SplitN(found, ":", 2)[0], "${}")
		if value, known := values[name]; known {
			return value
		}
		return found
	})
}

var labelValuesForm = regexp.MustCompile(`^label_values\((.+), *(\w+)\)$`)

// labelValues turns Grafana's label_values(selector, label) into PromQL.
func labelValues(definition string) (string, error) {
	m := labelValuesForm.FindStringSubmatch(definition)
	if m == nil {
		return "", fmt.Errorf("%q is not label_values(selector, label)", definition)
	}
	return fmt.Sprintf("group by (%s) (%s)", m[2], m[1]), nil
}

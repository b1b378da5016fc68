package main

import (
	"maps"
	"os"
	"path/filepath"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// rule is a rule of a rule file with the group that it belongs to.
type rule struct {
	file, group string
	content     ruleContent
}

// ruleContent is a rule as a rule file states it.
type ruleContent struct {
	Record        string            `yaml:"record,omitempty"`
	Alert         string            `yaml:"alert,omitempty"`
	Expr          string            `yaml:"expr"`
	For           string            `yaml:"for,omitempty"`
	KeepFiringFor string            `yaml:"keep_firing_for,omitempty"`
	Labels        map[string]string `yaml:"labels,omitempty"`
	Annotations   map[string]string `yaml:"annotations,omitempty"`
}

type ruleGroup struct {
	Name  string        `yaml:"name"`
	Rules []ruleContent `yaml:"rules"`
}

func (r rule) name() string { return r.content.Record + r.content.Alert }

func (r rule) with(change func(*ruleContent)) rule {
	r.content.Labels, r.content.Annotations = maps.Clone(r.content.Labels), maps.Clone(r.content.Annotations)
	change(&r.content)
	return r
}

// readRules returns the rules of all rule files of a folder in order.
func readRules(dir string) ([]rule, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var rules []rule
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var content struct {
			Groups []ruleGroup `yaml:"groups"`
		}
		if err := yaml.Unmarshal(text, &content); err != nil {
			return nil, err
		}
		for _, g := range content.Groups {
			for _, r := range g.Rules {
				rules = append(rules, rule{filepath.Base(path), g.Name, r})
			}
		}
	}
	return rules, nil
}

// writeRules writes the rules to a rule file, in the groups that they belong to.
func writeRules(path string, rules []rule) error {
	var groups []ruleGroup
	for _, r := range rules {
		if len(groups) == 0 || groups[len(groups)-1].Name != r.group {
			groups = append(groups, ruleGroup{Name: r.group})
		}
		last := &groups[len(groups)-1]
		last.Rules = append(last.Rules, r.content)
	}
	text, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

func parse(expr string) (parser.Expr, error) {
	return parser.NewParser(parser.Options{}).ParseExpr(expr)
}

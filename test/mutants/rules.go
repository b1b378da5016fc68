package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// rule is a rule of a rule file with the group that it belongs to. index is its place among all
// rules.
type rule struct {
	file, group string
	index       int
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
				rules = append(rules, rule{filepath.Base(path), g.Name, len(rules), r})
			}
		}
	}
	return rules, nil
}

func parse(expr string) (parser.Expr, error) {
	return parser.NewParser(parser.Options{}).ParseExpr(expr)
}

// selectors returns the selectors of the rule's expression.
func (r rule) selectors() []*parser.VectorSelector {
	expr, err := parse(r.content.Expr)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", r.name(), err)) // promtool check rules has accepted the rule.
	}
	return selectors(expr)
}

func selectors(expr parser.Expr) []*parser.VectorSelector {
	var found []*parser.VectorSelector
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			found = append(found, s)
		}
		return nil
	})
	return found
}

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
)

// activeAlert is a pending or firing alert. since and absent are steps: that at which the alert
// became active, and that since which the expression has no result for it, or -1.
type activeAlert struct {
	since, absent int
	isFiring      bool
	last          promql.Sample
	lastStep      int
}

// alerts returns the active alerts of a rule after a step, by their labels.
func (s *simulation) alerts(index, step int) (map[string]*activeAlert, error) {
	content := s.rules[index].content
	hold, keep := duration(content.For), duration(content.KeepFiringFor)
	first := 0
	if keep == 0 { // Then only the steps since `for` before count.
		first = max(0, s.stepAt(s.timeOf(step).Add(-hold).UnixMilli()))
	}
	active := map[string]*activeAlert{}
	for at := first; at <= step; at++ {
		vector, err := s.result(index, at)
		if err != nil {
			return nil, err
		}
		present := map[string]bool{}
		for _, sample := range vector {
			key := sample.Metric.String()
			present[key] = true
			if active[key] == nil {
				active[key] = &activeAlert{since: at}
			}
			a := active[key]
			a.absent, a.last, a.lastStep = -1, sample, at
			a.isFiring = a.isFiring || s.timeOf(at).Sub(s.timeOf(a.since)) >= hold
		}
		for key, a := range active {
			if present[key] {
				continue
			}
			if a.absent < 0 {
				a.absent = at
			}
			if !a.isFiring || s.timeOf(at).Sub(s.timeOf(a.absent)) >= keep {
				delete(active, key)
			}
		}
	}
	return active, nil
}

func duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := model.ParseDuration(text)
	if err != nil {
		panic(err) // promtool check rules has accepted the rule.
	}
	return time.Duration(d)
}

// series returns the samples that a rule writes at a step.
func (s *simulation) series(index, step int) (promql.Vector, error) {
	if s.rules[index].content.Alert == "" {
		return s.result(index, step)
	}
	active, err := s.alerts(index, step)
	var samples promql.Vector
	for _, a := range active {
		state := "pending"
		if a.isFiring {
			state = "firing"
		}
		metric := labels.NewBuilder(a.last.Metric).Set(model.MetricNameLabel, "ALERTS").Set("alertstate", state).Labels()
		samples = append(samples, promql.Sample{Metric: metric, F: 1})
	}
	return samples, err
}

// firing returns the labels and annotations of the firing alerts with a name after a step.
func (s *simulation) firing(name string, step int) ([]string, error) {
	var found []string
	for i, r := range s.rules {
		if r.content.Alert != name {
			continue
		}
		active, err := s.alerts(i, step)
		if err != nil {
			return nil, err
		}
		for _, a := range active {
			if !a.isFiring {
				continue
			}
			annotations := map[string]string{}
			for key, text := range r.content.Annotations {
				annotations[key] = s.expand(r, text, a)
			}
			found = append(found, firingAlert(a.last.Metric, annotations))
		}
	}
	slices.Sort(found)
	return found, nil
}

// firingAlert returns the text by which firing alerts are compared.
func firingAlert(metric labels.Labels, annotations map[string]string) string {
	text := metric.String()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		text += fmt.Sprintf("\n%s=%q", key, annotations[key])
	}
	return text
}

// expand expands the template of an annotation.
func (s *simulation) expand(r rule, text string, a *activeAlert) string {
	metric := a.last.Metric.Map()
	delete(metric, labels.AlertName)
	for name := range r.content.Labels {
		delete(metric, name)
	}
	at := s.timeOf(a.lastStep)
	text = strings.Join([]string{"{{$labels := .Labels}}", "{{$externalLabels := .ExternalLabels}}", "{{$externalURL := .ExternalURL}}", "{{$value := .Value}}", text}, "")
	data := template.AlertTemplateData(metric, s.test.content.ExternalLabels, "", a.last)
	expanded, err := template.NewTemplateExpander(context.Background(), text, "__alert_"+r.content.Alert, data, model.TimeFromUnixNano(at.UnixNano()), nil, nil, nil).Expand()
	if err != nil {
		return fmt.Sprintf("<error expanding template: %s>", err)
	}
	return expanded
}

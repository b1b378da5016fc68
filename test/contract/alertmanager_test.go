package contract

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"sigs.k8s.io/yaml"
)

type alertmanagerConfig struct {
	Route        alertRoute `json:"route"`
	InhibitRules []struct {
		SourceMatchers []string `json:"source_matchers"`
		TargetMatchers []string `json:"target_matchers"`
		Equal          []string `json:"equal"`
	} `json:"inhibit_rules"`
	Receivers []struct {
		Name string `json:"name"`
	} `json:"receivers"`
}

type alertRoute struct {
	Matchers       []string     `json:"matchers"`
	Receiver       string       `json:"receiver"`
	Continue       bool         `json:"continue"`
	GroupBy        []string     `json:"group_by"`
	GroupWait      string       `json:"group_wait"`
	GroupInterval  string       `json:"group_interval"`
	RepeatInterval string       `json:"repeat_interval"`
	Routes         []alertRoute `json:"routes"`
}

func readAlertmanagerConfig(t *testing.T) alertmanagerConfig {
	t.Helper()
	var config alertmanagerConfig
	if err := yaml.UnmarshalStrict([]byte(readFile(t, filepath.Join(root, "config", "prometheus", "alertmanager.yaml"))), &config); err != nil {
		t.Fatal(err)
	}
	return config
}

var (
	matcherSyntax = regexp.MustCompile(`^(\w+)(=~|!~|!=|=)"([^"]*)"$`)
	matchTypes    = map[string]labels.MatchType{"=": labels.MatchEqual, "!=": labels.MatchNotEqual, "=~": labels.MatchRegexp, "!~": labels.MatchNotRegexp}
)

// matches returns whether an alert has the labels of all matchers. A label that it does not have
// counts as empty, as in Alertmanager.
func matches(t *testing.T, matchers []string, alert map[string]string) bool {
	t.Helper()
	all := true
	for _, text := range matchers {
		parts := matcherSyntax.FindStringSubmatch(text)
		if parts == nil {
			t.Fatalf("%s is no matcher", text)
		}
		matcher, err := labels.NewMatcher(matchTypes[parts[2]], parts[1], parts[3])
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		all = all && matcher.Matches(alert[parts[1]])
	}
	return all
}

// find returns the routes that notify of an alert, with the receivers that they inherit, as
// Alertmanager selects them: the first child that matches, and the ones after a child with
// continue.
func (r alertRoute) find(t *testing.T, alert map[string]string) []alertRoute {
	t.Helper()
	var found []alertRoute
	for _, child := range r.Routes {
		if !matches(t, child.Matchers, alert) {
			continue
		}
		if child.Receiver == "" {
			child.Receiver = r.Receiver
		}
		found = append(found, child.find(t, alert)...)
		if !child.Continue {
			break
		}
	}
	if len(found) == 0 {
		return []alertRoute{r}
	}
	return found
}

// inhibits returns whether the source suppresses notifications of the target.
func (c alertmanagerConfig) inhibits(t *testing.T, source, target map[string]string) bool {
	t.Helper()
	for _, rule := range c.InhibitRules {
		areEqual := !slices.ContainsFunc(rule.Equal, func(label string) bool { return source[label] != target[label] })
		if areEqual && matches(t, rule.SourceMatchers, source) && matches(t, rule.TargetMatchers, target) {
			return true
		}
	}
	return false
}

// shippedAlerts returns each alert of rules/ with the labels of its expression. All alerts have the
// same values of these.
func shippedAlerts(t *testing.T) []map[string]string {
	t.Helper()
	known := exportedMetrics(t)
	addRecordingRules(known, readRules(t, recordingFiles...))
	var alerts []map[string]string
	for _, g := range readRules(t, alertFiles...).Groups {
		for _, r := range g.Rules {
			have, _ := known.check(r.Expr)
			alert := map[string]string{}
			for label := range have {
				alert[label] = "same"
			}
			maps.Copy(alert, r.Labels)
			alert["alertname"] = r.Alert
			alerts = append(alerts, alert)
		}
	}
	return alerts
}

func TestAlertmanagerNotifiesOnce(t *testing.T) {
	config := readAlertmanagerConfig(t)
	receivers := map[string]bool{}
	for _, r := range config.Receivers {
		receivers[r.Name] = true
	}
	for _, alert := range shippedAlerts(t) {
		notified := map[string]int{}
		for _, route := range config.Route.find(t, alert) {
			if !receivers[route.Receiver] {
				t.Errorf("%s goes to the receiver %q, which does not exist", alert["alertname"], route.Receiver)
			}
			notified[route.Receiver]++
			if alert["severity"] == "info" && route.RepeatInterval != "5d" {
				t.Errorf("the information %s is repeated after %s, want 5d", alert["alertname"], route.RepeatInterval)
			}
			// Alertmanager forgets a notification after --data.retention, by default 120h, and repeats it then.
			if repeat, err := model.ParseDuration(route.RepeatInterval); err == nil && time.Duration(repeat) > 120*time.Hour {
				t.Errorf("%s is repeated after %s, which is longer than Alertmanager keeps notifications", alert["alertname"], route.RepeatInterval)
			}
		}
		for receiver, times := range notified {
			if times > 1 {
				t.Errorf("%s with severity %s is sent to %s by %d routes", alert["alertname"], alert["severity"], receiver, times)
			}
		}
		if got, want := notified["page"] > 0, alert["severity"] == "critical"; got != want {
			t.Errorf("%s with severity %s pages: %v, want %v", alert["alertname"], alert["severity"], got, want)
		}
	}
}

// An alert about one device, node or model suppresses no alert about another one.
func TestAlertmanagerInhibitsTheSameObject(t *testing.T) {
	config := readAlertmanagerConfig(t)
	alerts, pairs := shippedAlerts(t), 0
	for _, source := range alerts {
		for _, target := range alerts {
			if !config.inhibits(t, source, target) {
				continue
			}
			pairs++
			object := []string{"node", "resource", "model"}
			if source["uuid"] != "" && target["uuid"] != "" {
				object = []string{"node", "uuid"} // A device has one model.
			}
			for _, label := range object {
				if source[label] == "" || target[label] == "" {
					continue
				}
				other := maps.Clone(target)
				other[label] = "other"
				if config.inhibits(t, source, other) {
					t.Errorf("%s with severity %s suppresses %s with severity %s of another %s", source["alertname"], source["severity"], target["alertname"], target["severity"], label)
				}
			}
		}
	}
	if pairs == 0 {
		t.Error("no alert suppresses another one")
	}
}

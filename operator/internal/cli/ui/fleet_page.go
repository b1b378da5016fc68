package ui

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/cli/fleet"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// fleetPage shows free devices by cluster and model, the largest fit, and what is unusable and why.
func fleetPage(ctx context.Context, v *view, q url.Values) *page {
	p := &page{Title: "Fleet", Fields: []field{{"q", "Filter", q.Get("q")}}}
	managed := v.managedClusters(ctx)
	found, err := v.scores(ctx)
	noScores, noDevices := "none", "no devices reported"
	if v.missing("scores", err) {
		noScores = format.Unknown
	}
	scores := map[string]map[string]gate.Score{}
	for name := range managed {
		scores[name] = nil
	}
	for name, of := range found {
		scores[name] = of
	}
	devices, err := v.devices(ctx)
	sums := section{Title: "All clusters", Head: []string{"RESOURCE", "FREE", "TOTAL", "WITHOUT"}}
	switch {
	case err != nil:
		v.notes.add("devices are unknown: " + err.Error())
		noDevices = format.Unknown
		sums.Text = "Free and total devices are unknown."
	case len(devices) == 0:
		sums.Text = "No cluster reports devices."
	}
	clusters := fleet.Clusters(scores, devices)
	for _, s := range fleet.Sums(clusters) {
		sums.Rows = append(sums.Rows, texts(s.Resource, s.Free.String(), s.Total.String(), cmp.Or(format.Abbreviate(s.Without), "-")))
	}
	table := section{Title: "Clusters", Head: []string{"CLUSTER", "STATE", "MODEL", "FREE", "TOTAL", "LARGEST FIT", "UNUSABLE", "RESOURCE", "SCORES"}}
	for _, c := range clusters {
		state, of := stateOf(managed[c.Cluster]), text(cmp.Or(explain.Scores(c.Scores, v.app.Now(), false), noScores))
		if len(c.Devices) == 0 {
			unknown := text(format.Unknown)
			table.Rows = append(table.Rows, []cell{text(c.Cluster), state, text(noDevices), unknown, unknown, unknown, unknown, unknown, of})
		}
		for _, d := range c.Devices {
			unusable := text(d.UnusableText())
			if len(d.Unusable) > 0 {
				unusable.Parts[0].Tone = "warning"
			}
			table.Rows = append(table.Rows, []cell{text(c.Cluster), state, text(d.Model), text(fleet.Count(d.Free)), text(fleet.Count(d.Total)), text(fleet.Count(d.LargestFit)), unusable, text(d.Resource), of})
		}
	}
	if len(clusters) == 0 {
		table.Text = "No cluster is known: the hub has no accepted ManagedCluster and no score, or they can't be read."
	}
	p.Sections = []section{sums, table.filtered("./", q)}
	return p
}

// stateOf says if the hub reaches a cluster; nil = the hub has no such ManagedCluster.
func stateOf(c *clusterv1.ManagedCluster) cell {
	if c == nil {
		return text(format.Unknown)
	}
	available := apimeta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	switch {
	case available == nil:
		return toned("warning", "never joined")
	case available.Status == metav1.ConditionTrue:
		return toned("good", "available")
	}
	return toned("bad", strings.TrimSuffix("not available: "+available.Message, ": "))
}

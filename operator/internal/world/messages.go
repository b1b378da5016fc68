package world

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// statement is a part of the message of a job that waits, and its truth. isTrue has the parts in
// parentheses of the pattern.
type statement struct {
	pattern *regexp.Regexp
	isTrue  func(w *World, r *Run, parts []string) bool
}

// statements are those whose truth the world knows.
var statements = []statement{
	{regexp.MustCompile(`(cluster\d+) is held for (\S+?)(?:[;,]|$)`), func(w *World, _ *Run, parts []string) bool {
		return slices.Contains(w.Operator.Holds()[parts[0]], parts[1])
	}},
	{regexp.MustCompile(`(cluster\d+) is not connected by Kueue`), func(w *World, _ *Run, parts []string) bool {
		remote := w.multiKueue.remotes[parts[0]]
		return !remote.connected || !w.clusterOf(parts[0]).reachable
	}},
	{regexp.MustCompile(`(cluster\d+) (?:reports no samples|has samples older)`), func(w *World, _ *Run, parts []string) bool {
		// A lost store of another cluster may make the metrics of this one incomplete.
		return slices.ContainsFunc(w.clusters, func(c *cluster) bool { return !w.settled(c) }) ||
			!slices.ContainsFunc(w.clusterOf(parts[0]).nodes, func(n *node) bool { return n.ready })
	}},
	{regexp.MustCompile(`there is room, but (\S+)/(\S+) is decided first`), func(w *World, _ *Run, parts []string) bool {
		wl := w.kueue.workloads.get(types.NamespacedName{Namespace: parts[0], Name: parts[1]})
		return wl != nil && !kueuestate.IsFinished(wl) && wl.Status.ClusterName == nil
	}},
	{regexp.MustCompile(`an equal workload is decided first`), func(_ *World, r *Run, _ []string) bool { return r.waitsInLine() }},
	{regexp.MustCompile(`on one node: best is (cluster\d+) with (\d+)(?:[;,]|$)`), func(w *World, r *Run, parts []string) bool {
		c := w.clusterOf(parts[0])
		return !w.settled(c) || strconv.FormatInt(c.largestFree(r.assignedModel()), 10) == parts[1]
	}},
	{regexp.MustCompile(`on one node: (none) has any`), func(w *World, r *Run, _ []string) bool {
		return !slices.ContainsFunc(w.clusters, func(c *cluster) bool {
			return w.settled(c) && w.isQuiet(c) && len(w.Operator.Holds()[c.spec.Name]) == 0 && c.largestFree(r.assignedModel()) > 0
		})
	}},
	neverStatement,
}

// messageLag is how long a message may lag behind the truth: the metrics', and a round of the queue.
const messageLag = 3 * time.Minute

// checkMessage reports a statement of a waiting job's message that has been false for messageLag.
func (w *World) checkMessage(r *Run) {
	wl := w.kueue.workloads.get(r.Key)
	if wl == nil || !kueuestate.HoldsQuota(wl) || !kueuestate.IsActive(wl) || kueuestate.IsEvicted(wl) {
		r.falseSince = nil
		return
	}
	check := kueuestate.FindCheck(wl, checkName)
	if check == nil || check.State != kueue.CheckStatePending {
		r.falseSince = nil
		return
	}
	since := map[string]time.Time{}
	for _, s := range statements {
		for _, match := range s.pattern.FindAllStringSubmatch(check.Message, -1) {
			text := strings.TrimRight(match[0], ";,")
			if s.isTrue(w, r, match[1:]) {
				continue
			}
			since[text] = w.loop.Now()
			if before, was := r.falseSince[text]; was {
				since[text] = before
			}
			if w.loop.Now().Sub(since[text]) > messageLag {
				w.broken(TrueMessage, r.Name, "%s waits with the message %q, of which %q has not been true for %s", r.Name, check.Message, text, messageLag)
			}
		}
	}
	r.falseSince = since
}

// waitsInLine reports whether another job of the same request waits.
func (r *Run) waitsInLine() bool {
	return slices.ContainsFunc(r.world.order, func(other *Run) bool {
		wl := r.world.kueue.workloads.get(other.Key)
		return other != r && wl != nil && !kueuestate.IsFinished(wl) && kueuestate.HoldsQuota(wl) && wl.Status.ClusterName == nil &&
			other.Devices == r.Devices && other.Resource == r.Resource && other.assignedModel() == r.assignedModel()
	})
}

// assignedModel is the device model of the flavor that the job has on the hub; empty = any.
func (r *Run) assignedModel() string {
	return r.asAssigned(r.world.kueue.workloads.get(r.Key)).Model
}

// largestFree are the most devices of a model that are free on a usable node.
func (c *cluster) largestFree(model string) int64 {
	most := int64(0)
	for _, n := range c.nodes {
		if n.ready && n.pool.isUsable() && (model == "" || n.pool.Model == model) {
			most = max(most, n.free())
		}
	}
	return most
}

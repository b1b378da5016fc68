package metricssource

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/metrics/dial"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// observation is the result of one check of a source.
type observation struct {
	version string
	// queryErr is the failure of the check query.
	queryErr error
	// configErr means that no client can be built from the spec and its Secrets.
	configErr error
	health    query.Health
}

// decideReachable decides the condition Reachable.
func decideReachable(o observation) condition.Decision {
	switch {
	case o.configErr != nil:
		return condition.False("InvalidConfiguration", o.configErr.Error())
	case o.queryErr != nil:
		return condition.False(string(query.ReasonOf(o.queryErr)), o.queryErr.Error())
	case o.version != "":
		return condition.True("QuerySucceeded", "the server responds, version "+o.version)
	default:
		return condition.True("QuerySucceeded", "the server responds")
	}
}

// decideReady decides the condition Ready. An insecure or incomplete source is ready:
// the conditions Secure and CompleteResponses report these states.
func decideReady(reachable condition.Decision) condition.Decision {
	if !reachable.IsTrue() {
		return reachable
	}
	return condition.True("Ready", "the source can be queried")
}

// decideSecure decides the condition Secure.
func decideSecure(spec *v1alpha1.MetricsSourceSpec) condition.Decision {
	url := spec.URL
	if dial.IsPerCluster(spec) {
		url = spec.Topology.URLTemplate
	}
	switch {
	case strings.HasPrefix(url, "http://"):
		return condition.False("PlainHTTP", "queries, responses and credentials are not encrypted; use an https URL")
	case spec.TLS != nil && spec.TLS.InsecureSkipVerify:
		return condition.False("InsecureSkipVerify", "certificates are not verified: an attacker on the network can read credentials and change scores; set tls.ca instead")
	default:
		return condition.True("Verified", "certificates are verified")
	}
}

// decideComplete decides the condition CompleteResponses.
func decideComplete(h query.Health) condition.Decision {
	if h.Partial != "" {
		return condition.False("StoresMissing", "responses lack data: "+h.Partial)
	}
	return condition.True("AllStoresResponded", "all stores respond")
}

// setConditions sets all conditions and returns the decision on Reachable.
func setConditions(src *v1alpha1.MetricsSource, o observation) condition.Decision {
	set := func(conditionType string, d condition.Decision) {
		d.Message = condition.Truncate(d.Message, 1024)
		condition.Set(&src.Status.Conditions, conditionType, d, src.Generation)
	}
	reachable := decideReachable(o)
	set(v1alpha1.ConditionReady, decideReady(reachable))
	set(v1alpha1.ConditionReachable, reachable)
	set(v1alpha1.ConditionSecure, decideSecure(&src.Spec))
	if (src.Spec.Type == v1alpha1.SourceThanos || o.health.Partial != "") && o.configErr == nil {
		set(v1alpha1.ConditionCompleteResponses, decideComplete(o.health))
	} else {
		meta.RemoveStatusCondition(&src.Status.Conditions, v1alpha1.ConditionCompleteResponses)
	}
	return reachable
}

// writeStatus writes the status if it changed. It logs condition transitions, and
// sends an event if the source becomes reachable or unreachable.
func (r *Reconciler) writeStatus(ctx context.Context, src *v1alpha1.MetricsSource, o observation) error {
	before := src.DeepCopy()
	reachable := setConditions(src, o)
	src.Status.ObservedGeneration = src.Generation
	if o.version != "" {
		src.Status.Version = o.version
	}
	src.Status.LastError = ""
	if !reachable.IsTrue() {
		src.Status.LastError = condition.Truncate(reachable.Message, 1024)
	}
	updateLastSuccess(src, o.health.LastSuccess)
	if equality.Semantic.DeepEqual(before.Status, src.Status) {
		log.FromContext(ctx).V(1).Info("Status unchanged")
		return nil
	}
	if err := r.client.Status().Patch(ctx, src, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, c := range condition.Transitions(before.Status.Conditions, src.Status.Conditions) {
		log.FromContext(ctx).Info("Condition changed", "type", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message)
	}
	old := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReachable)
	if old != nil && old.Status == reachable.Status {
		return nil
	}
	eventType := corev1.EventTypeNormal
	if !reachable.IsTrue() {
		eventType = corev1.EventTypeWarning
	}
	r.recorder.Eventf(src, nil, eventType, reachable.Reason, "Query", "%s", reachable.Message)
	return nil
}

// updateLastSuccess updates the time of the last successful query at most once a
// minute: a status write after every query would load the API server for nothing.
func updateLastSuccess(src *v1alpha1.MetricsSource, last time.Time) {
	if last.IsZero() {
		return
	}
	if old := src.Status.LastSuccessTime; old == nil || last.Sub(old.Time) >= time.Minute {
		t := metav1.NewTime(last)
		src.Status.LastSuccessTime = &t
	}
}

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

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dial"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// observed is what one look at a source showed.
type observed struct {
	version string
	err     error // it does not answer
	refused error // it can't be asked as configured
	health  query.Health
}

func unusable(err error) observed { return observed{refused: err} }

// reachable decides the condition Reachable.
func reachable(o observed) (metav1.ConditionStatus, string, string) {
	switch {
	case o.refused != nil:
		return metav1.ConditionFalse, "InvalidConfiguration", o.refused.Error()
	case o.err != nil:
		return metav1.ConditionFalse, string(query.ReasonOf(o.err)), o.err.Error()
	case o.version != "":
		return metav1.ConditionTrue, "Answered", "answers as version " + o.version
	default:
		return metav1.ConditionTrue, "Answered", "answers"
	}
}

// secure decides the condition Secure.
func secure(spec *v1alpha1.MetricsSourceSpec) (metav1.ConditionStatus, string, string) {
	url := spec.URL
	if dial.IsPerCluster(spec) {
		url = spec.Topology.URLTemplate
	}
	switch {
	case strings.HasPrefix(url, "http://"):
		return metav1.ConditionFalse, "PlainHTTP", "questions, answers and credentials travel unencrypted"
	case spec.TLS != nil && spec.TLS.InsecureSkipVerify:
		return metav1.ConditionFalse, "InsecureSkipVerify", "any certificate is accepted: whoever stands in between can read credentials and choose scores"
	default:
		return metav1.ConditionTrue, "Verified", "certificates are verified"
	}
}

// partial decides the condition PartialResponse.
func partial(h query.Health) (metav1.ConditionStatus, string, string) {
	if h.Partial != "" {
		return metav1.ConditionTrue, "StoresMissing", "clusters that are not whole in the answers are left out: " + h.Partial
	}
	return metav1.ConditionFalse, "Whole", "every store answers"
}

// report writes the status when it means something else than before, and an event
// when the source begins or stops to answer.
func (r *Reconciler) report(ctx context.Context, src *v1alpha1.MetricsSource, o observed) error {
	before := src.DeepCopy()
	was := meta.FindStatusCondition(src.Status.Conditions, v1alpha1.ConditionReachable)
	var previous metav1.ConditionStatus
	if was != nil {
		previous = was.Status
	}
	status, reason, message := reachable(o)
	set(src, v1alpha1.ConditionReachable, status, reason, message)
	s, why, text := secure(&src.Spec)
	set(src, v1alpha1.ConditionSecure, s, why, text)
	if src.Spec.Type == v1alpha1.SourceThanos && o.refused == nil {
		s, why, text := partial(o.health)
		set(src, v1alpha1.ConditionPartialResponse, s, why, text)
	} else {
		meta.RemoveStatusCondition(&src.Status.Conditions, v1alpha1.ConditionPartialResponse)
	}
	if o.version != "" {
		src.Status.Version = o.version
	}
	src.Status.LastError = ""
	if status == metav1.ConditionFalse {
		src.Status.LastError = clip(message)
	}
	renewSuccess(src, o.health.LastSuccess)
	if equality.Semantic.DeepEqual(before.Status, src.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, src, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	switch {
	case previous == status:
	case status == metav1.ConditionFalse:
		r.recorder.Eventf(src, nil, corev1.EventTypeWarning, reason, "Ask", "%s", message)
	default:
		r.recorder.Eventf(src, nil, corev1.EventTypeNormal, reason, "Ask", "%s", message)
	}
	return nil
}

// renewSuccess keeps the time of the last answer to the minute: a status write for
// every question would be noise.
func renewSuccess(src *v1alpha1.MetricsSource, last time.Time) {
	if last.IsZero() {
		return
	}
	if old := src.Status.LastSuccessTime; old == nil || last.Sub(old.Time) >= time.Minute {
		t := metav1.NewTime(last)
		src.Status.LastSuccessTime = &t
	}
}

func set(src *v1alpha1.MetricsSource, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&src.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: clip(message), ObservedGeneration: src.Generation,
	})
}

func clip(s string) string {
	if r := []rune(s); len(r) > 1024 {
		return string(r[:1021]) + "..."
	}
	return s
}

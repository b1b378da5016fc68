//go:build integration

package scoringpolicy_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// TestInvalidObjectsAreRejected checks the messages of the API server.
func TestInvalidObjectsAreRejected(t *testing.T) {
	src := func(change func(*v1alpha1.MetricsSourceSpec)) client.Object {
		s := source("invalid", "http://127.0.0.1:1")
		change(&s.Spec)
		return s
	}
	pol := func(change func(*v1alpha1.ScoringPolicySpec)) client.Object {
		p := policy("invalid")
		change(&p.Spec)
		return p
	}
	five, bound := int32(5), resource.MustParse("5")
	for _, tc := range []struct {
		obj  client.Object
		want string
	}{
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.URL = "" }), "exactly one of url, urlTemplate must be set"},
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.URLTemplate = "http://{cluster}" }), "exactly one of url, urlTemplate must be set"},
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.URL = "ftp://x" }), "spec.url"},
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.Type = "Graphite" }), `supported values: "Prometheus", "Thanos"`},
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.URL, s.URLTemplate = "", "http://x/" }), "urlTemplate must hold {cluster}"},
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.ClusterMapping.Match = "Label" }), "key must name the label or claim when match is not Name"},
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.TLS = &v1alpha1.TLSConfig{Cert: ref("a", "b")} }), "cert and key must be set together"},
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.Auth = &v1alpha1.Auth{} }), "exactly one of basic, authorization, oauth2 must be set"},
		{src(func(s *v1alpha1.MetricsSourceSpec) {
			s.Auth = &v1alpha1.Auth{Basic: &v1alpha1.BasicAuth{Username: *ref("a", "b"), Password: *ref("a", "b")},
				Authorization: &v1alpha1.Authorization{Credentials: ref("a", "b")}}
		}), "exactly one of basic, authorization, oauth2 must be set"},
		{src(func(s *v1alpha1.MetricsSourceSpec) {
			s.Auth = &v1alpha1.Auth{Authorization: &v1alpha1.Authorization{Credentials: ref("a", "b"), CredentialsFile: "c"}}
		}), "exactly one of credentials, credentialsFile must be set"},
		{src(func(s *v1alpha1.MetricsSourceSpec) {
			s.Headers = []v1alpha1.Header{{Name: "authorization", Value: "x"}}
		}), "Authorization must be set by spec.auth"},
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.Headers = []v1alpha1.Header{{Name: "X"}} }), "exactly one of value, secret must be set"},
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.Thanos = &v1alpha1.ThanosOptions{} }), "thanos must be set only when type is Thanos"},
		{src(func(s *v1alpha1.MetricsSourceSpec) {
			s.Type, s.Thanos = "Thanos", &v1alpha1.ThanosOptions{StoreMatch: make([]string, 17)}
		}), "spec.thanos.storeMatch"},
		{src(func(s *v1alpha1.MetricsSourceSpec) { s.Advanced.MaxConcurrency = 65 }), "spec.advanced.maxConcurrency"},

		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores = nil }), "spec.scores"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores = append(s.Scores, s.Scores[0]) }), `Duplicate value: {"name":"free"}`},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Total.Name = "free" }), "total.name must differ from every scores[].name"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].NameFrom = &v1alpha1.NameFrom{Label: "model"} }), "weight must be 0 with nameFrom"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) {
			s.Scores[0].NameFrom, s.Scores[0].Minimum = &v1alpha1.NameFrom{Label: "model"}, &bound
		}), "minimum and maximum must not be set with nameFrom"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].NameFrom = &v1alpha1.NameFrom{Label: "model"} }), "missing.absent must be Worst, Omit or Fixed with nameFrom"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].NameFrom = &v1alpha1.NameFrom{Label: "a-b"} }), "spec.scores[0].nameFrom.label"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) {
			s.Scores[0].NameFrom = &v1alpha1.NameFrom{Label: "model", Limit: 65}
		}), "spec.scores[0].nameFrom.limit"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) {
			s.Scores[0].NameFrom, s.Total.Name = &v1alpha1.NameFrom{Label: "model"}, "free-total"
		}), "total.name must not begin with the name of a score with nameFrom"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Mode = "Dry" }), `supported values: "Enforce", "Shadow"`},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.ValidForPeriods = 1 }), "spec.validForPeriods"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Name = "a_b" }), "spec.scores[0].name"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Normalize.Linear = nil }), "linear must be set exactly when type is Linear"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Normalize.Type = "Steps" }), "steps must be set exactly when type is Steps"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Normalize.Type = "Fleet" }), "fleet must be set exactly when type is Fleet"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Missing.Then = "Fixed" }), `supported values: "Worst", "Omit"`},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Missing.Absent = "Fixed" }), "fixedValue must be set exactly when absent is Fixed"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Missing.FixedValue = &five }), "fixedValue must be set exactly when absent is Fixed"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Scores[0].Damping.Deadband = 101 }), "spec.scores[0].damping.deadband"},
		{pol(func(s *v1alpha1.ScoringPolicySpec) { s.Publish.Name = "Not a name" }), "spec.publish.name"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			err := api.Create(context.Background(), tc.obj)
			if err == nil {
				_ = api.Delete(context.Background(), tc.obj)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want %q, got %v", tc.want, err)
			}
		})
	}
}

// TestDefaultsAreWritten checks that the API server writes the defaults into objects.
func TestDefaultsAreWritten(t *testing.T) {
	s, p := source("defaults", "http://127.0.0.1:1"), policy("defaults")
	p.Spec.PeriodSeconds, p.Spec.ValidForPeriods, p.Spec.Total = 0, 0, &v1alpha1.TotalSpec{}
	p.Spec.ClusterSelector = &metav1.LabelSelector{}
	create(t, s)
	create(t, p)
	got := []any{
		s.Spec.Type, s.Spec.ClusterMapping.Label, s.Spec.ClusterMapping.Match, s.Spec.Advanced,
		p.Spec.PeriodSeconds, p.Spec.ValidForPeriods, p.Spec.Mode, *p.Spec.MinHealthyPercent, p.Spec.Total.Name, p.Spec.Total.Range,
		*p.Spec.Scores[0].Weight, p.Spec.Scores[0].Range, p.Spec.Scores[0].Missing.KeepLastSeconds == nil, p.Spec.Scores[0].Missing.Then, p.Spec.Scores[0].Missing.Absent,
	}
	want := []any{
		v1alpha1.SourcePrometheus, "cluster", v1alpha1.MatchName,
		v1alpha1.AdvancedSource{TimeoutSeconds: 10, MaxConcurrency: 4, QueriesPerSecond: 20, MaxSeries: 100000},
		int32(30), int32(3), v1alpha1.ModeEnforce, int32(50), "total", v1alpha1.RangeZeroTo100,
		int32(1), v1alpha1.RangeZeroTo100, true, v1alpha1.MissingWorst, v1alpha1.AbsentUnknown,
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d: got %v, want %v", i, got[i], want[i])
		}
	}
}

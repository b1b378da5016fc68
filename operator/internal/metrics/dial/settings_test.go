package dial

import (
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// TestIdentityOfASource: a setting that selects other data, or maps it to other clusters, makes
// another source. Another setting does not, and must not make queries start again: the likely time
// to raise a limit is an outage.
func TestIdentityOfASource(t *testing.T) {
	no := false
	changes := map[string]struct {
		change func(s *v1alpha1.MetricsSourceSpec)
		want   bool
	}{
		"URL":               {func(s *v1alpha1.MetricsSourceSpec) { s.URL = "https://b" }, true},
		"Type":              {func(s *v1alpha1.MetricsSourceSpec) { s.Type = v1alpha1.SourceThanos }, true},
		"Type, the default": {func(s *v1alpha1.MetricsSourceSpec) { s.Type = "" }, false},
		"Tenant":            {func(s *v1alpha1.MetricsSourceSpec) { s.Tenant = "b" }, true},
		"URLTemplate":       {func(s *v1alpha1.MetricsSourceSpec) { s.URL, s.URLTemplate = "", "https://{cluster}" }, true},
		"ClusterMapping":    {func(s *v1alpha1.MetricsSourceSpec) { s.ClusterMapping.Label = "site" }, true},
		"ClusterMapping, default": {func(s *v1alpha1.MetricsSourceSpec) {
			s.ClusterMapping.Label, s.ClusterMapping.Match = "cluster", v1alpha1.MatchName
		}, false},
		"ClusterMapping, match": {func(s *v1alpha1.MetricsSourceSpec) {
			s.ClusterMapping.Match, s.ClusterMapping.Key = v1alpha1.MatchLabel, "site"
		}, true},
		"Headers": {func(s *v1alpha1.MetricsSourceSpec) {
			s.Headers = []v1alpha1.Header{{Name: "X-Scope-OrgID", Value: "a"}}
		}, true},
		"Auth":             {func(s *v1alpha1.MetricsSourceSpec) { s.Auth = basic("b") }, true},
		"TLS, certificate": {func(s *v1alpha1.MetricsSourceSpec) { s.TLS = &v1alpha1.TLSConfig{Cert: keyPointer("cert")} }, true},
		"TLS": {func(s *v1alpha1.MetricsSourceSpec) {
			s.TLS = &v1alpha1.TLSConfig{CA: keyPointer("ca"), ServerName: "a"}
		}, false},
		"Thanos": {func(s *v1alpha1.MetricsSourceSpec) {
			s.Type, s.Thanos = v1alpha1.SourceThanos, &v1alpha1.ThanosOptions{Dedup: &no}
		}, true},
		"Thanos, store match": {func(s *v1alpha1.MetricsSourceSpec) {
			s.Type, s.Thanos = v1alpha1.SourceThanos, &v1alpha1.ThanosOptions{StoreMatch: []string{"{a=\"b\"}"}}
		}, true},
		"Advanced": {func(s *v1alpha1.MetricsSourceSpec) { s.Advanced.TimeoutSeconds = 60 }, false},
	}
	identity := func(change func(*v1alpha1.MetricsSourceSpec)) string {
		src := &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.MetricsSourceSpec{URL: "https://a", Type: v1alpha1.SourcePrometheus, Auth: basic("a")}}
		change(&src.Spec)
		return SourceInfo(src).Identity()
	}
	before := identity(func(*v1alpha1.MetricsSourceSpec) {})
	for name, tc := range changes {
		if got := identity(tc.change) != before; got != tc.want {
			t.Errorf("%s: another source: %t, want %t", name, got, tc.want)
		}
	}
	spec := reflect.TypeFor[v1alpha1.MetricsSourceSpec]()
	for i := range spec.NumField() {
		if _, ok := changes[spec.Field(i).Name]; !ok {
			t.Errorf("add %s to the changes: does it select other data?", spec.Field(i).Name)
		}
	}
	headers := func(reverse bool) string {
		return identity(func(s *v1alpha1.MetricsSourceSpec) {
			s.Headers = []v1alpha1.Header{{Name: "A", Value: "1"}, {Name: "B", Secret: keyPointer("b")}}
			if reverse {
				slices.Reverse(s.Headers)
			}
		})
	}
	if headers(false) != headers(true) {
		t.Error("the order of headers makes another source")
	}
}

func basic(name string) *v1alpha1.Auth {
	return &v1alpha1.Auth{Basic: &v1alpha1.BasicAuth{Username: key(name), Password: key(name)}}
}

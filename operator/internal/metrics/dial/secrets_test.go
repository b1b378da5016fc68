package dial

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func TestCheckSecret(t *testing.T) {
	labeled := map[string]string{v1alpha1.SourceSecretLabel: "true"}
	for _, tc := range []struct {
		name   string
		labels map[string]string
		hosts  string // "-" = no annotation
		host   string
		want   string
	}{
		{"no label", nil, "-", "prom.example.org", "no label"},
		{"label with another value", map[string]string{v1alpha1.SourceSecretLabel: "yes"}, "-", "prom.example.org", "no label"},
		{"labeled", labeled, "-", "prom.example.org", ""},
		{"named host", labeled, "a.example.org,Prom.example.org", "prom.example.org", ""},
		{"other host", labeled, "prom.example.org", "prom.example.org.evil.org", "does not contain the host prom.example.org.evil.org"},
		{"domain", labeled, "*.example.org", "prom.example.org", ""},
		{"domain as the end of another name", labeled, "*.example.org", "evil-example.org", "does not contain"},
		{"wildcard without a domain", labeled, "*", "prom.example.org", "does not contain"},
		{"empty annotation", labeled, "", "prom.example.org", "does not contain"},
	} {
		annotations := map[string]string{v1alpha1.SourceHostsAnnotation: tc.hosts}
		if tc.hosts == "-" {
			annotations = nil
		}
		err := CheckSecret(tc.labels, annotations, tc.host)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestSecretUsesNameTheHostThatReceivesTheSecret(t *testing.T) {
	spec := &v1alpha1.MetricsSourceSpec{
		Topology: &v1alpha1.Topology{Type: v1alpha1.TopologyPerCluster, URLTemplate: "https://Prom.{cluster}.example.org:9090/x"},
		Headers:  []v1alpha1.Header{{Name: "X-Key", Secret: keyPointer("header")}},
		Auth:     &v1alpha1.Auth{OAuth2: &v1alpha1.OAuth2{ClientID: key("id"), ClientSecret: key("secret"), TokenURL: "https://login.example.org/token?a=b"}},
	}
	want := map[string]string{"header": "prom.{cluster}.example.org", "id": "login.example.org", "secret": "login.example.org"}
	uses := SecretUses(spec)
	for _, use := range uses {
		if use.Host != want[use.Reference.Key] {
			t.Errorf("%s is sent to %s", use.Reference.Key, use.Host)
		}
	}
	if len(uses) != len(want) {
		t.Errorf("%d uses, want %d", len(uses), len(want))
	}
}

// TestSourceAuthorMistakes has specs with which an author of a source could reach what is
// not theirs, or break a request. Each is refused with the field that is wrong.
func TestSourceAuthorMistakes(t *testing.T) {
	perCluster := func(template string) v1alpha1.MetricsSourceSpec {
		return v1alpha1.MetricsSourceSpec{Topology: &v1alpha1.Topology{Type: v1alpha1.TopologyPerCluster, URLTemplate: template}}
	}
	bearer := func(a v1alpha1.Authorization) *v1alpha1.Auth { return &v1alpha1.Auth{Authorization: &a} }
	for _, tc := range []struct {
		name string
		spec v1alpha1.MetricsSourceSpec
		want string
	}{
		{"template with a user", perCluster("https://prom@{cluster}.example.org/"), "must not contain a user"},
		{"template that sends the cluster to another host", perCluster("https://{cluster}@evil.example.org/"), "must not contain a user"},
		{"URL with a password", v1alpha1.MetricsSourceSpec{URL: "https://a:b@prom.example.org"}, "must not contain a user"},
		{"file outside of the folder", v1alpha1.MetricsSourceSpec{URL: "https://x", Auth: bearer(v1alpha1.Authorization{CredentialsFile: "../../etc/shadow"})}, "must be in /creds"},
		{"line break in the tenant", v1alpha1.MetricsSourceSpec{URL: "https://x", Tenant: "a\r\nX-Admin: true"}, "tenant must not contain line breaks"},
		{"line break in a header", v1alpha1.MetricsSourceSpec{URL: "https://x", Headers: []v1alpha1.Header{{Name: "X-A", Value: "a\nb"}}}, "the header X-A must not contain line breaks"},
		{"line break in a Secret", v1alpha1.MetricsSourceSpec{URL: "https://x", Headers: []v1alpha1.Header{{Name: "X-A", Secret: keyPointer("broken")}}}, `the key "broken" of Secret`},
		{"line break in a token", v1alpha1.MetricsSourceSpec{URL: "https://x", Auth: bearer(v1alpha1.Authorization{Credentials: keyPointer("broken")})}, `the key "broken" of Secret`},
		{"cluster in a Secret of a single server", v1alpha1.MetricsSourceSpec{URL: "https://x", Auth: bearer(v1alpha1.Authorization{Credentials: &v1alpha1.SecretKeyReference{Name: "prom-{cluster}", Key: "t"}})}, "requires topology.type PerCluster"},
	} {
		cfg, err := ClientConfig(&v1alpha1.MetricsSource{Spec: tc.spec}, secrets{key("broken"): "s3cret\nX-Admin: true"}, "/creds")
		if err == nil {
			_, err = query.New(cfg)
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestForClusterExpandsCredentials(t *testing.T) {
	dir := t.TempDir()
	for _, cluster := range []string{"c1", "c2"} {
		if err := os.WriteFile(filepath.Join(dir, cluster+".token"), []byte(cluster+"-token"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	base := serve(t, requireAuth(func(r *http.Request) bool {
		cluster := strings.Split(r.URL.Path, "/")[1]
		return r.Header.Get("Authorization") == "Bearer "+cluster+"-token" && r.Header.Get("X-Key") == cluster+"-key"
	}))
	spec := v1alpha1.MetricsSourceSpec{
		Topology: &v1alpha1.Topology{Type: v1alpha1.TopologyPerCluster, URLTemplate: base + "/{cluster}"},
		Auth:     &v1alpha1.Auth{Authorization: &v1alpha1.Authorization{CredentialsFile: "{cluster}.token"}},
		Headers:  []v1alpha1.Header{{Name: "X-Key", Secret: &v1alpha1.SecretKeyReference{Name: "prom-{cluster}", Key: "key"}}},
	}
	for _, cluster := range []string{"c1", "c2"} {
		expanded, err := ForCluster(&spec, cluster)
		if err != nil {
			t.Fatal(err)
		}
		values := secrets{{Name: "prom-" + cluster, Key: "key"}: cluster + "-key\n"}
		if c := newClient(t, *expanded, values, dir); c != nil {
			if _, err := c.Query(context.Background(), "up", time.Now()); err != nil {
				t.Errorf("%s: %v", cluster, err)
			}
		}
	}
	if _, err := ForCluster(&spec, "../c1"); err == nil {
		t.Error("a cluster name with a path is accepted")
	}
}

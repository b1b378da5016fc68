package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func TestBasicAuth(t *testing.T) {
	base := serve(t, requireAuth(func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		return user == "ann" && password == "pw"
	}))
	spec := v1alpha1.MetricsSourceSpec{URL: base, Auth: &v1alpha1.Auth{Basic: &v1alpha1.BasicAuth{Username: key("user"), Password: key("password")}}}
	if err := runQuery(t, spec, secrets{key("user"): "ann", key("password"): "pw"}, ""); err != nil {
		t.Error(err)
	}
	if err := runQuery(t, spec, secrets{key("user"): "ann", key("password"): "wrong"}, ""); query.ReasonOf(err) != query.ReasonUnauthorized {
		t.Errorf("wrong password: %v", err)
	}
}

func TestBearerTokenFileIsReadForEachQuery(t *testing.T) {
	token := "one"
	base := serve(t, requireAuth(func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+token }))
	dir := t.TempDir()
	write := func(s string) {
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte(s+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	c := newClient(t, v1alpha1.MetricsSourceSpec{URL: base, Auth: &v1alpha1.Auth{Authorization: &v1alpha1.Authorization{CredentialsFile: "token"}}}, nil, dir)
	for _, token = range []string{"one", "two"} {
		write(token)
		if _, err := c.Query(context.Background(), "up", time.Now()); err != nil {
			t.Errorf("token %s: %v", token, err)
		}
	}
}

func TestCredentialsFileMustBeInTheDirectory(t *testing.T) {
	for _, tc := range []struct{ name, dir, path, want string }{
		{"no directory", "", "token", "--credentials-dir"},
		{"relative path to a parent", "/creds", "../etc/passwd", "must be in /creds"},
		{"absolute path outside", "/creds", "/etc/passwd", "must be in /creds"},
		{"absolute path to a parent", "/creds", "/creds/../etc/passwd", "must be in /creds"},
		{"absolute path inside", "/creds", "/creds/a", ""},
		{"relative path inside", "/creds", "a/b", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := credentialsFile(tc.dir, tc.path)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%q in %q: %v", tc.path, tc.dir, err)
			}
		})
	}
}

func TestOAuth2(t *testing.T) {
	issued := 0
	tokens := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if id != "me" || secret != "sh" || r.FormValue("scope") != "read" || r.FormValue("audience") != "prom" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		issued++
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"tok","token_type":"Bearer","expires_in":3600}`)
	}))
	base := serve(t, requireAuth(func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer tok" }))
	spec := v1alpha1.MetricsSourceSpec{URL: base, Auth: &v1alpha1.Auth{OAuth2: &v1alpha1.OAuth2{
		ClientID: key("id"), ClientSecret: key("secret"), TokenURL: tokens, Scopes: []string{"read"},
		EndpointParams: map[string]string{"audience": "prom"},
	}}}
	c := newClient(t, spec, secrets{key("id"): "me", key("secret"): "sh"}, "")
	for range 2 {
		if _, err := c.Query(context.Background(), "up", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if issued != 1 {
		t.Errorf("%d token requests for two queries, want 1", issued)
	}
	err := runQuery(t, spec, secrets{key("id"): "me", key("secret"): "no"}, "")
	if query.ReasonOf(err) != query.ReasonUnauthorized {
		t.Errorf("wrong client secret: %v", err)
	}
}

func TestTenantAndHeaders(t *testing.T) {
	for kind, header := range map[v1alpha1.SourceType]string{v1alpha1.SourceMimir: "X-Scope-OrgID", v1alpha1.SourceThanos: "THANOS-TENANT"} {
		t.Run(string(kind), func(t *testing.T) {
			var got http.Header
			base := serve(t, requireAuth(func(r *http.Request) bool { got = r.Header; return true }))
			spec := v1alpha1.MetricsSourceSpec{URL: base, Type: kind, Tenant: "team", Headers: []v1alpha1.Header{{Name: "X-A", Value: "plain"}, {Name: "X-B", Secret: keyPointer("b")}}}
			if err := runQuery(t, spec, secrets{key("b"): "hidden"}, ""); err != nil {
				t.Fatal(err)
			}
			if got.Get(header) != "team" || got.Get("X-A") != "plain" || got.Get("X-B") != "hidden" {
				t.Errorf("%s: %v", kind, got)
			}
		})
	}
	_, err := ClientConfig(&v1alpha1.MetricsSource{Spec: v1alpha1.MetricsSourceSpec{URL: "http://x", Headers: []v1alpha1.Header{{Name: "Authorization", Value: "x"}}}}, nil, "")
	if err == nil {
		t.Error("the header Authorization is accepted")
	}
}

func TestThanosParameters(t *testing.T) {
	var got url.Values
	base := serve(t, requireAuth(func(r *http.Request) bool { got = r.URL.Query(); return true }))
	no, resolution := false, int32(300)
	spec := v1alpha1.MetricsSourceSpec{URL: base, Type: v1alpha1.SourceThanos, Thanos: &v1alpha1.ThanosOptions{
		Dedup: &no, MaxSourceResolutionSeconds: &resolution, StoreMatch: []string{`{a="b"}`, `{c="d"}`},
	}}
	if err := runQuery(t, spec, nil, ""); err != nil {
		t.Fatal(err)
	}
	want := url.Values{"dedup": {"false"}, "partial_response": {"false"}, "max_source_resolution": {"5m0s"}, "storeMatch[]": {`{a="b"}`, `{c="d"}`}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	spec.Type, spec.Thanos = v1alpha1.SourcePrometheus, nil
	if err := runQuery(t, spec, nil, ""); err != nil || len(got) != 0 {
		t.Errorf("Prometheus received the parameters %v (%v)", got, err)
	}
}

func TestMutualTLS(t *testing.T) {
	ca := newCA(t)
	certificate, privateKey := ca.issue(t, "client", time.Now().Add(time.Hour))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca.pem))
	start := func(until time.Time) string {
		server := httptest.NewUnstartedServer(requireAuth(func(r *http.Request) bool { return r.TLS.PeerCertificates[0].Subject.CommonName == "client" }))
		serverCert, serverKey := ca.issue(t, "server", until)
		pair, err := tls.X509KeyPair([]byte(serverCert), []byte(serverKey))
		if err != nil {
			t.Fatal(err)
		}
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL
	}
	until := time.Now().Add(-time.Hour)
	base, expired := start(time.Now().Add(time.Hour)), start(until)
	expiry := fmt.Sprintf("BadTLS: the certificate of the server is valid from %s to %s: renew it, or check the clocks",
		ca.validFrom.Format(time.RFC3339), until.UTC().Format(time.RFC3339))
	all := secrets{key("ca"): ca.pem, key("cert"): certificate, key("key"): privateKey}
	full := &v1alpha1.TLSConfig{CA: keyPointer("ca"), Cert: keyPointer("cert"), Key: keyPointer("key")}
	for _, tc := range []struct {
		name string
		url  string
		tls  *v1alpha1.TLSConfig
		want query.Reason
	}{
		{"valid certificates", base, full, ""},
		{"no client certificate", base, &v1alpha1.TLSConfig{CA: keyPointer("ca")}, query.ReasonBadTLS},
		{"unknown authority", base, &v1alpha1.TLSConfig{Cert: keyPointer("cert"), Key: keyPointer("key")}, query.ReasonBadTLS},
		{"wrong server name", base, &v1alpha1.TLSConfig{CA: keyPointer("ca"), Cert: keyPointer("cert"), Key: keyPointer("key"), ServerName: "other"}, query.ReasonBadTLS},
		{"expired server certificate", expired, full, query.ReasonBadTLS},
		{"verification disabled", expired, &v1alpha1.TLSConfig{InsecureSkipVerify: true, Cert: keyPointer("cert"), Key: keyPointer("key")}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := runQuery(t, v1alpha1.MetricsSourceSpec{URL: tc.url, TLS: tc.tls}, all, "")
			if tc.want == "" && err != nil || tc.want != "" && query.ReasonOf(err) != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if tc.url == expired && err != nil && err.Error() != expiry {
				t.Errorf("got %v, want %s", err, expiry)
			}
		})
	}
}

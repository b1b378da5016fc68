//go:build integration

package scoringpolicy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// issuer is an OAuth 2.0 token endpoint. Each token is different, and all are valid.
type issuer struct {
	*httptest.Server
	secret atomic.Value // of the client
	issued atomic.Int64
}

func newIssuer(t *testing.T, secret string) *issuer {
	t.Helper()
	i := &issuer{}
	i.secret.Store(secret)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if id != "plimsoll" || secret != i.secret.Load() || r.FormValue("scope") != "metrics" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%s is not the secret"}`, secret)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"issued-%d","token_type":"Bearer","expires_in":3600}`, i.issued.Add(1))
	}))
	t.Cleanup(i.Close)
	return i
}

// TestAuthMethodsFollowTheirSecrets has a server for each method:
//
//  1. With a wrong Secret, the condition states the reason, and scores are kept.
//  2. The right Secret is used without a restart.
//  3. No value of a Secret is shown anywhere.
func TestAuthMethodsFollowTheirSecrets(t *testing.T) {
	tokens := newIssuer(t, "right-client-secret")
	startOperator(t)
	for _, tc := range []struct {
		name         string
		right, wrong map[string]string // entries of the Secret
		pass         func(r *http.Request) bool
		set          func(s *v1alpha1.MetricsSourceSpec, secret string)
	}{
		{
			"basic", map[string]string{"user": "ann", "password": "right-password"}, map[string]string{"user": "ann", "password": "wrong-password"},
			func(r *http.Request) bool {
				user, password, _ := r.BasicAuth()
				return user == "ann" && password == "right-password"
			},
			func(s *v1alpha1.MetricsSourceSpec, secret string) {
				s.Auth = &v1alpha1.Auth{Basic: &v1alpha1.BasicAuth{Username: *ref(secret, "user"), Password: *ref(secret, "password")}}
			},
		}, {
			"scheme", map[string]string{"key": "right-api-key"}, map[string]string{"key": "wrong-api-key"},
			func(r *http.Request) bool { return r.Header.Get("Authorization") == "ApiKey right-api-key" },
			func(s *v1alpha1.MetricsSourceSpec, secret string) {
				s.Auth = &v1alpha1.Auth{Authorization: &v1alpha1.Authorization{Type: "ApiKey", Credentials: ref(secret, "key")}}
			},
		}, {
			"oauth2", map[string]string{"id": "plimsoll", "secret": "right-client-secret"}, map[string]string{"id": "plimsoll", "secret": "wrong-client-secret"},
			func(r *http.Request) bool {
				return strings.HasPrefix(r.Header.Get("Authorization"), "Bearer issued-")
			},
			func(s *v1alpha1.MetricsSourceSpec, secret string) {
				s.Auth = &v1alpha1.Auth{OAuth2: &v1alpha1.OAuth2{
					ClientID: *ref(secret, "id"), ClientSecret: *ref(secret, "secret"), TokenURL: tokens.URL, Scopes: []string{"metrics"},
				}}
			},
		}, {
			"header", map[string]string{"key": "right-header-key"}, map[string]string{"key": "wrong-header-key"},
			func(r *http.Request) bool {
				return r.Header.Get("X-Key") == "right-header-key" && r.Header.Get("X-Scope-OrgID") == "team-a"
			},
			func(s *v1alpha1.MetricsSourceSpec, secret string) {
				s.Tenant = "team-a"
				s.Headers = []v1alpha1.Header{{Name: "X-Key", Secret: ref(secret, "key")}}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			name := "auth-" + tc.name
			prom := newPrometheus(t)
			prom.set("free", map[string]string{name: "3"})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !tc.pass(r) {
					w.WriteHeader(http.StatusUnauthorized)
					_, _ = io.WriteString(w, "not you: "+r.Header.Get("Authorization")+r.Header.Get("X-Key"))
					return
				}
				prom.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			credentials := secret(name, tc.right)
			create(t, credentials)
			s := source(name, server.URL)
			tc.set(&s.Spec, name)
			createCluster(t, name, map[string]string{"fleet": name})
			create(t, s)
			create(t, policy(name))
			replace := func(with map[string]string) {
				t.Helper()
				before := credentials.DeepCopy()
				for key, value := range with {
					credentials.Data[key] = []byte(value)
				}
				if err := api.Patch(context.Background(), credentials, client.MergeFrom(before)); err != nil {
					t.Fatal(err)
				}
			}
			published := func(free int32) {
				t.Helper()
				eventually(t, func(g gomega.Gomega) {
					g.Expect(values(g, name, name)).To(gomega.HaveKeyWithValue("free", free))
					g.Expect(sourceCondition(g, name, v1alpha1.ConditionReachable)).To(gomega.Equal("True/QuerySucceeded"))
				})
			}
			published(30)
			replace(tc.wrong)
			eventually(t, func(g gomega.Gomega) {
				g.Expect(sourceCondition(g, name, v1alpha1.ConditionReachable)).To(gomega.Equal("False/Unauthorized"))
				kept := meta.FindStatusCondition(score(g, name, name).Status.Conditions, "DataFresh")
				g.Expect(kept.Reason).To(gomega.Equal("Kept"))
			})
			prom.set("free", map[string]string{name: "4"})
			replace(tc.right)
			published(40)
			text := visibleText(gomega.NewWithT(t))
			for _, values := range []map[string]string{tc.right, tc.wrong} {
				for key, value := range values {
					if key != "user" && key != "id" && strings.Contains(text, value) {
						t.Errorf("%s %q is shown", key, value)
					}
				}
			}
		})
	}
}

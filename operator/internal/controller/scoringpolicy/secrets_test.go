//go:build integration

package scoringpolicy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// identity is a self-signed certificate and its key.
type identity struct {
	pair      tls.Certificate
	cert, key string // PEM
}

func newIdentity(t *testing.T, name string, until time.Time) identity {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	id := identity{
		cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		key:  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})),
	}
	if id.pair, err = tls.X509KeyPair([]byte(id.cert), []byte(id.key)); err != nil {
		t.Fatal(err)
	}
	return id
}

// serveTLS serves with the current identity of server to clients with the certificate of
// client. Every query uses a new connection.
func serveTLS(t *testing.T, h http.Handler, server *atomic.Pointer[identity], client identity) string {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(client.cert))
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, Certificates: []tls.Certificate{server.Load().pair},
		}, nil
	}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.SetKeepAlivesEnabled(false)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func ref(secret, key string) *v1alpha1.SecretKeyReference {
	return &v1alpha1.SecretKeyReference{Name: secret, Key: key}
}

func secret(name string, data map[string]string) *corev1.Secret {
	labels := map[string]string{v1alpha1.SourceSecretLabel: "true"}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: name, Labels: labels}, StringData: data}
}

// visibleText returns all sources, policies and events as JSON, followed by the log.
func visibleText(g gomega.Gomega) string {
	var sources v1alpha1.MetricsSourceList
	var policies v1alpha1.ScoringPolicyList
	var events eventsv1.EventList
	var text strings.Builder
	for _, list := range []client.ObjectList{&sources, &policies, &events} {
		g.Expect(api.List(context.Background(), list)).To(gomega.Succeed())
		content, err := json.Marshal(list)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		text.Write(content)
	}
	return text.String() + logged.String()
}

// TestMutualTLSAndBearerRotateWithoutRestart has a server that requires a client
// certificate and a token, and repeats a wrong token in its response. Then the certificate
// of the server expires and is replaced.
func TestMutualTLSAndBearerRotateWithoutRestart(t *testing.T) {
	const name = "guarded"
	first, second := "the-first-token", "the-second-token"
	var token atomic.Value
	token.Store(first)
	prom := newPrometheus(t)
	prom.set("free", map[string]string{"guarded-1": "3"})
	var server atomic.Pointer[identity]
	id, me := newIdentity(t, "server", time.Now().Add(time.Hour)), newIdentity(t, "operator", time.Now().Add(time.Hour))
	server.Store(&id)
	url := serveTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer "+token.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "go away, "+got)
			return
		}
		prom.ServeHTTP(w, r)
	}), &server, me)
	auth := secret(name, map[string]string{"ca": id.cert, "cert": me.cert, "key": me.key, "token": first})
	create(t, auth)
	s := source(name, url)
	s.Spec.TLS = &v1alpha1.TLSConfig{CA: ref(name, "ca"), Cert: ref(name, "cert"), Key: ref(name, "key")}
	s.Spec.Auth = &v1alpha1.Auth{Authorization: &v1alpha1.Authorization{Credentials: ref(name, "token")}}
	createCluster(t, "guarded-1", map[string]string{"fleet": name})
	create(t, s)
	create(t, policy(name))
	startOperator(t)
	good := func(free int32) {
		t.Helper()
		eventually(t, func(g gomega.Gomega) {
			g.Expect(values(g, "guarded-1", name)).To(gomega.HaveKeyWithValue("free", free))
			g.Expect(sourceCondition(g, name, v1alpha1.ConditionReachable)).To(gomega.Equal("True/QuerySucceeded"))
		})
	}
	bad := func(reason string) {
		t.Helper()
		eventually(t, func(g gomega.Gomega) {
			g.Expect(sourceCondition(g, name, v1alpha1.ConditionReachable)).To(gomega.Equal("False/" + reason))
			fresh, _ := condition(g, name, v1alpha1.ConditionDataFresh)
			g.Expect(fresh).To(gomega.Equal("False/" + reason))
			kept := meta.FindStatusCondition(score(g, "guarded-1", name).Status.Conditions, "DataFresh")
			g.Expect(kept.Reason).To(gomega.Equal("Kept"))
			g.Expect(eventReasons(g, "MetricsSource", name)).To(gomega.ContainElement(reason))
		})
	}
	update := func(key, value string) {
		t.Helper()
		before := auth.DeepCopy()
		auth.Data[key] = []byte(value)
		if err := api.Patch(context.Background(), auth, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	good(30)

	token.Store(second)
	bad("Unauthorized")
	prom.set("free", map[string]string{"guarded-1": "4"})
	update("token", second)
	good(40)

	brief := newIdentity(t, "server", time.Now().Add(4*time.Second))
	server.Store(&brief)
	update("ca", brief.cert)
	prom.set("free", map[string]string{"guarded-1": "5"})
	good(50)
	bad("BadTLS") // the certificate has expired
	renewed := newIdentity(t, "server", time.Now().Add(time.Hour))
	server.Store(&renewed)
	update("ca", renewed.cert)
	prom.set("free", map[string]string{"guarded-1": "6"})
	good(60)

	text := visibleText(gomega.NewWithT(t))
	for _, hidden := range []string{"go away", first, second, me.key[30:60]} {
		if strings.Contains(text, hidden) {
			t.Errorf("%q is shown", hidden)
		}
	}
}

// TestTenantGainsNoSecret: a user who may only write policies can neither read a Secret
// nor make the operator reveal one.
func TestTenantGainsNoSecret(t *testing.T) {
	const name = "tenant"
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "error": "you sent " + r.Header.Get("Authorization") + " and " + r.Header.Get("X-Key")})
	}))
	t.Cleanup(echo.Close)
	create(t, secret(name, map[string]string{"user": "ann", "password": "the-password", "key": "the-api-key"}))
	s := source(name, echo.URL)
	s.Spec.Auth = &v1alpha1.Auth{Basic: &v1alpha1.BasicAuth{Username: *ref(name, "user"), Password: *ref(name, "password")}}
	s.Spec.Headers = []v1alpha1.Header{{Name: "X-Key", Secret: ref(name, "key")}}
	create(t, s)
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"scoringpolicies"}, Verbs: all},
	}})
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	})
	cfg := rest.CopyConfig(hub)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	tenant, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	createCluster(t, "tenant-1", map[string]string{"fleet": name})
	startOperator(t)
	ctx := context.Background()
	p := policy(name)
	eventually(t, func(g gomega.Gomega) {
		g.Expect(client.IgnoreAlreadyExists(tenant.Create(ctx, p))).To(gomega.Succeed())
	})
	t.Cleanup(func() { _ = api.Delete(ctx, p) })

	for what, err := range map[string]error{
		"read a Secret":           tenant.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: name}, &corev1.Secret{}),
		"send Secrets somewhere":  tenant.Create(ctx, source("tenants-own", echo.URL)),
		"turn a source elsewhere": tenant.Patch(ctx, s.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"url":"http://elsewhere"}}`))),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("a tenant can %s: %v", what, err)
		}
	}
	eventually(t, func(g gomega.Gomega) {
		g.Expect(tenant.Get(ctx, client.ObjectKeyFromObject(p), p)).To(gomega.Succeed())
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionQueriesValid)
		g.Expect(c).NotTo(gomega.BeNil())
		g.Expect(c.Message).To(gomega.ContainSubstring("you sent Basic (hidden) and (hidden)"))
	})
	text := visibleText(gomega.NewWithT(t))
	for _, hidden := range []string{"the-password", "the-api-key", "YW5uOnRoZS1wYXNzd29yZA=="} {
		if strings.Contains(text, hidden) {
			t.Errorf("%q is shown", hidden)
		}
	}
}

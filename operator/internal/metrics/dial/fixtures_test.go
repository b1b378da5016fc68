package dial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// authority issues certificates for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
	// validFrom is the beginning of the validity of the certificates that it issues.
	validFrom time.Time
}

func newCA(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key, pem: encode("CERTIFICATE", der), validFrom: time.Now().UTC().Add(-23 * time.Hour)}
}

func (a *authority) issue(t *testing.T, name string, until time.Time) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: a.validFrom, NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

type secrets = map[v1alpha1.SecretKeyReference]string

func key(name string) v1alpha1.SecretKeyReference {
	return v1alpha1.SecretKeyReference{Name: "s", Key: name}
}

func keyPointer(name string) *v1alpha1.SecretKeyReference { k := key(name); return &k }

const emptyVector = `{"status":"success","data":{"resultType":"vector","result":[]}}`

// requireAuth responds with an empty vector to requests that isAllowed accepts, and with
// 401 to all others.
func requireAuth(isAllowed func(*http.Request) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isAllowed(r) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, emptyVector)
	}
}

func runQuery(t *testing.T, spec v1alpha1.MetricsSourceSpec, s secrets, dir string) error {
	t.Helper()
	c := newClient(t, spec, s, dir)
	_, err := c.Query(context.Background(), "up", time.Now())
	return err
}

func newClient(t *testing.T, spec v1alpha1.MetricsSourceSpec, s secrets, dir string) *query.Client {
	t.Helper()
	cfg, err := ClientConfig(&v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: "src"}, Spec: spec}, s, dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.AllowLoopback = true
	c, err := query.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

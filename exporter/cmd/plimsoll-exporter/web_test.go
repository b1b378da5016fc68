package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate of 127.0.0.1, written beside its key into a folder.
func certificate(t *testing.T, folder string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return pool
}

// The user is prometheus, the password scrape.
const webConfig = `tls_server_config: {cert_file: cert.pem, key_file: key.pem}
basic_auth_users: {prometheus: $2a$04$uTwGHIG70klnPDrmcQlky.8VPYoSOv2u41yEQzWvY1se.BIUz6YkW}
`

func TestTLSAndBasicAuthKeepOthersOut(t *testing.T) {
	folder := t.TempDir()
	pool := certificate(t, folder)
	config := filepath.Join(folder, "web.yml")
	if err := os.WriteFile(config, []byte(webConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--web.config.file", "--web-config-file"} {
		p := start(t, command(t, "--source=sim", flag+"="+config))
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
		base := strings.Replace(p.base, "http://", "https://", 1)
		for _, path := range []string{"/metrics", "/health", "/debug/pprof/"} {
			if got := ask(t, client, base+path, "", ""); got != http.StatusUnauthorized {
				t.Errorf("%s %s without a password: %d", flag, path, got)
			}
		}
		if got := ask(t, client, base+"/metrics", "prometheus", "guess"); got != http.StatusUnauthorized {
			t.Errorf("%s with a wrong password: %d", flag, got)
		}
		if got := ask(t, client, base+"/metrics", "prometheus", "scrape"); got != http.StatusOK {
			t.Errorf("%s with the password: %d", flag, got)
		}
		if got := ask(t, client, p.base+"/metrics", "prometheus", "scrape"); got != http.StatusBadRequest {
			t.Errorf("%s without TLS: %d", flag, got)
		}
		client.CloseIdleConnections()
	}
}

func ask(t *testing.T, client *http.Client, url, user, password string) int {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close() // of which nothing is read
	return response.StatusCode
}

func TestSystemdHandsTheSocketOver(t *testing.T) {
	for _, flag := range []string{"--web.systemd-socket", "--web-systemd-socket"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		socket, err := listener.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		cmd := command(t, "--source=sim", flag)
		// systemd tells the process its own id.
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"`}, cmd.Args...)
		cmd.ExtraFiles = []*os.File{socket}
		p := start(t, cmd)
		_ = socket.Close() // the process has its own
		if p.base != "http://"+listener.Addr().String() {
			t.Errorf("%s: it listens on %s", flag, p.base)
		}
		p.until("/metrics", http.StatusOK, "DCGM_FI_DEV_GPU_UTIL{")
		_ = listener.Close()
	}
}

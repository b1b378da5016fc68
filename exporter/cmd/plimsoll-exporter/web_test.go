package main

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// webConfig has the user prometheus with the password scrape.
const webConfig = `tls_server_config: {cert_file: cert.pem, key_file: key.pem}
basic_auth_users: {prometheus: $2a$04$uTwGHIG70klnPDrmcQlky.8VPYoSOv2u41yEQzWvY1se.BIUz6YkW}
`

func TestTLSAndBasicAuth(t *testing.T) {
	directory := t.TempDir()
	pool := writeCertificate(t, directory)
	config := filepath.Join(directory, "web.yml")
	if err := os.WriteFile(config, []byte(webConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--web.config.file", "--web-config-file"} {
		p := start(t, command(t, "--source=sim", flag+"="+config))
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
		base := strings.Replace(p.base, "http://", "https://", 1)
		for _, path := range []string{"/metrics", "/health", "/debug/pprof/"} {
			if got := requestStatus(t, client, base+path, "", ""); got != http.StatusUnauthorized {
				t.Errorf("%s %s without a password: %d", flag, path, got)
			}
		}
		if got := requestStatus(t, client, base+"/metrics", "prometheus", "guess"); got != http.StatusUnauthorized {
			t.Errorf("%s with a wrong password: %d", flag, got)
		}
		if got := requestStatus(t, client, base+"/metrics", "prometheus", "scrape"); got != http.StatusOK {
			t.Errorf("%s with the password: %d", flag, got)
		}
		if got := requestStatus(t, client, p.base+"/metrics", "prometheus", "scrape"); got != http.StatusBadRequest {
			t.Errorf("%s without TLS: %d", flag, got)
		}
		client.CloseIdleConnections()
	}
}

func requestStatus(t *testing.T, client *http.Client, url, user, password string) int {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
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
	_ = response.Body.Close() // the body is not needed
	return response.StatusCode
}

func TestSystemdSocket(t *testing.T) {
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
		// systemd passes the process id in LISTEN_PID.
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"`}, cmd.Args...)
		cmd.ExtraFiles = []*os.File{socket}
		p := start(t, cmd)
		_ = socket.Close() // the process has a duplicate
		if p.base != "http://"+listener.Addr().String() {
			t.Errorf("%s: the exporter listens at %s", flag, p.base)
		}
		p.waitFor("/metrics", http.StatusOK, "DCGM_FI_DEV_GPU_UTIL{")
		_ = listener.Close()
	}
}

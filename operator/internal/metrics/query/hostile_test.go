package query

import (
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/prometheus/common/config"
)

// hostileConfig has the default limits of a MetricsSource and a secret in each request.
func hostileConfig(url string) Config {
	return Config{
		URL: url, MaxConcurrency: 4, MaxSeries: 100000, MaxResponseBytes: 64 << 20,
		HTTP: config.HTTPClientConfig{Authorization: &config.Authorization{Type: "Bearer", Credentials: "s3cret-token"}},
	}
}

// expectFailure queries and checks the reason of the failure. Neither the secret nor a
// byte that a terminal interprets is in the message.
func expectFailure(t *testing.T, c *Client, reason Reason, contains string) {
	t.Helper()
	_, err := c.Query(t.Context(), "up", at)
	if err == nil || ReasonOf(err) != reason || !strings.Contains(err.Error(), contains) {
		t.Fatalf("got %v, want %s with %q", err, reason, contains)
	}
	if text := err.Error(); strings.Contains(text, "s3cret") || strings.Contains(text, "FOREIGN") || strings.ContainsFunc(text, unicode.IsControl) || len(text) > 1000 {
		t.Errorf("the error contains text of the server: %q", text)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached bool
	target := serve(t, func(http.ResponseWriter, *http.Request) { reached = true })
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target+"/FOREIGN?token="+r.Header.Get("Authorization"), status)
		})
		expectFailure(t, newClient(t, hostileConfig(url)), ReasonRedirected, target)
	}
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "https://FOREIGN host/")
		w.WriteHeader(307)
	})
	expectFailure(t, newClient(t, hostileConfig(url)), ReasonRedirected, "another address")
	if reached {
		t.Error("the target of the redirect received a request")
	}
}

func TestTokenRequestsAreNotRedirectedAndEndInTime(t *testing.T) {
	var reached bool
	target := serve(t, func(http.ResponseWriter, *http.Request) { reached = true })
	for name, tc := range map[string]struct {
		tokens http.HandlerFunc
		text   string
	}{
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target, http.StatusTemporaryRedirect)
		}, "redirects to " + target},
		"echo":    {reply(401, `{"error":"invalid_client","error_description":"FOREIGN s3cret-token"}`), "status 401"},
		"garbage": {reply(200, `FOREIGN s3cret-token`), "auth.oauth2.tokenURL"},
		"hangs":   {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, "auth.oauth2.tokenURL"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := hostileConfig(serve(t, reply(200, vector())))
			cfg.HTTP = config.HTTPClientConfig{OAuth2: &config.OAuth2{ClientID: "id", ClientSecret: "s3cret-token", TokenURL: serve(t, tc.tokens)}}
			c := newClient(t, cfg)
			c.cfg.Timeout = 300 * time.Millisecond
			start := time.Now()
			_, err := c.Query(t.Context(), "up", at)
			if err == nil || !strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "FOREIGN") {
				t.Errorf("%v, want %q", err, tc.text)
			}
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("the query took %v, its timeout is 300ms", took)
			}
		})
	}
	if reached {
		t.Error("the target of the redirect received the client secret")
	}
}

func TestForbiddenAddresses(t *testing.T) {
	for _, host := range []string{
		"169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "168.63.129.16", "100.100.100.200",
		"[fd00:ec2::254]", "[fd20:ce::254]", "127.0.0.1", "localhost", "[::1]", "0.0.0.0", "224.0.0.1",
	} {
		cfg := hostileConfig("http://" + host + ":9")
		cfg.Name, cfg.Timeout, cfg.QueriesPerSecond = "test", 5*time.Second, 10
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		expectFailure(t, c, ReasonForbidden, "sources must not use")
	}
	// The host of a token endpoint is checked as well.
	cfg := hostileConfig("http://127.0.0.1:9")
	cfg.HTTP = config.HTTPClientConfig{OAuth2: &config.OAuth2{ClientID: "id", ClientSecret: "s3cret", TokenURL: "http://169.254.169.254/token"}}
	expectFailure(t, newClient(t, cfg), ReasonForbidden, "link-local")
}

// tinySeries writes a vector of small series until it has n bytes or the client leaves.
func tinySeries(w io.Writer, n int) {
	_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[0,"0"]}`)
	chunk := []byte(strings.Repeat(`,{"metric":{"cluster":"a"},"value":[0,"1"]}`, 1000))
	for sent := 0; sent < n; sent += len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
	_, _ = io.WriteString(w, `]}}`)
}

// writeRepeated writes prefix and n times text, or less if the client leaves.
func writeRepeated(w io.Writer, prefix, text string, n int) {
	_, err := io.WriteString(w, prefix)
	for range n {
		if err == nil {
			_, err = io.WriteString(w, text)
		}
	}
}

func TestCompressedResponses(t *testing.T) {
	body := vectorOf(1000)
	for _, encoding := range []string{"gzip", "GZIP", ""} {
		c := newClient(t, hostileConfig(serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", encoding)
			if encoding == "" {
				_, _ = w.Write(body)
				return
			}
			z := gzip.NewWriter(w)
			_, _ = z.Write(body)
			_ = z.Close()
		})))
		if result, err := c.Query(t.Context(), "up", at); err != nil || len(result.Samples) != 1000 || result.Samples[999].Label("cluster") != "cluster-00999" {
			t.Errorf("%q: %d samples, %v", encoding, len(result.Samples), err)
		}
	}
	c := newClient(t, hostileConfig(serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "FOREIGN")
	})))
	expectFailure(t, c, ReasonBadResponse, "not Prometheus JSON")
}

func TestBadCertificates(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	expectFailure(t, newClient(t, hostileConfig(server.URL)), ReasonBadTLS, "unknown authority")
	cfg := hostileConfig(server.URL)
	cfg.HTTP.TLSConfig = config.TLSConfig{CA: pemOf(server.Certificate()), ServerName: "prometheus.example.org"}
	expectFailure(t, newClient(t, cfg), ReasonBadTLS, "not valid for the host name prometheus.example.org")
}

// TestForeignText serves text that must not reach conditions, events, terminals and logs.
func TestForeignText(t *testing.T) {
	control := `FOREIGN\u001b[31m\u0007`
	raw := func(text string) func(net.Conn) {
		return func(conn net.Conn) { _, _ = io.WriteString(conn, text) }
	}
	for name, tc := range map[string]struct {
		respond func(net.Conn)
		reason  Reason
	}{
		"status line": {raw("HTTP/1.1 FOREIGN\x1b[31m\r\n\r\n"), ReasonUnreachable},
		"no HTTP":     {raw("FOREIGN s3cret-token\x1b[31m\r\n"), ReasonUnreachable},
		"header":      {raw("HTTP/1.1 200 OK\r\nFOREIGN s3cret-token\x1b\r\n\r\n"), ReasonUnreachable},
		"html":        {raw("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<b>FOREIGN s3cret</b"), ReasonBadResponse},
		"status text": {raw("HTTP/1.1 403 FOREIGN s3cret-token\r\nContent-Length: 0\r\n\r\n"), ReasonUnauthorized},
		"result type": {raw(httpResponse(`{"status":"success","data":{"resultType":"` + control + `","result":[]}}`)), ReasonBadQuery},
		"value":       {raw(httpResponse(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"` + control + `"]}]}}`)), ReasonBadResponse},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				tc.respond(conn)
				_ = conn.Close()
			})
			expectFailure(t, newClient(t, hostileConfig(url)), tc.reason, "")
		})
	}
	body := `{"status":"success","warnings":[` + strings.Repeat(`"\u001b[31mred\u202e\u0000s3cret-token\n",`, 100000) + `"last"],"data":{"resultType":"vector","result":[
		{"metric":{"cluster":"a\u001b[2J","\u0007":"\u009b"},"value":[1,"1"]}]}}`
	cfg := hostileConfig(serve(t, reply(200, body)))
	cfg.Timeout = time.Minute
	c := newClient(t, cfg)
	result, err := c.Query(context.Background(), "up", at)
	if err != nil || len(result.Warnings) != maxAnnotations+1 || result.Warnings[maxAnnotations] != "and 99991 more" {
		t.Fatalf("%d warnings, %v", len(result.Warnings), err)
	}
	for _, text := range append(result.Warnings, c.Health().Partial, fmt.Sprint(result.Samples)) {
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(text, "s3cret") {
			t.Errorf("%q", text)
		}
	}
}

func httpResponse(body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

func pemOf(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

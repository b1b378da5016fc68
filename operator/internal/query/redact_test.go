package query

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/config"
)

func TestQuerySendsCredentialsAndRedactsThem(t *testing.T) {
	secret := func(s string) *config.Headers {
		return &config.Headers{Headers: map[string]config.Header{"X-Key": {Secrets: []config.Secret{config.Secret(s)}}}}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("short-one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		http config.HTTPClientConfig
		sent string // the credential that the server echoes
	}{
		"bearer":      {config.HTTPClientConfig{Authorization: &config.Authorization{Type: "Bearer", Credentials: "s3cret"}}, "Bearer s3cret"},
		"bearer file": {config.HTTPClientConfig{Authorization: &config.Authorization{Type: "Bearer", CredentialsFile: file}}, "Bearer short-one"},
		"basic":       {config.HTTPClientConfig{BasicAuth: &config.BasicAuth{Username: "u", Password: "s3cret"}}, "Basic dTpzM2NyZXQ="},
		"header":      {config.HTTPClientConfig{HTTPHeaders: secret("s3cret")}, "s3cret"},
	} {
		for _, status := range []int{200, 401, 422, 503} {
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				var sent string
				c := newClient(t, Config{HTTP: tc.http, URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
					sent = cmp.Or(r.Header.Get("Authorization"), r.Header.Get("X-Key"))
					reply(status, strings.Repeat(" ", 290)+"you said "+sent)(w, r)
				})})
				_, err := c.Query(context.Background(), "up", at)
				if sent != tc.sent {
					t.Errorf("sent %q, want %q", sent, tc.sent)
				}
				if err == nil || !strings.Contains(err.Error(), "you said") {
					t.Fatalf("the error lacks the message of the server: %v", err)
				}
				if shown := strings.Fields(tc.sent); strings.Contains(err.Error(), shown[len(shown)-1]) {
					t.Errorf("the error shows the secret: %v", err)
				}
			})
		}
	}
}

func TestQueryRedactsWarningsAndInfos(t *testing.T) {
	c := newClient(t, Config{
		HTTP: config.HTTPClientConfig{BasicAuth: &config.BasicAuth{Username: "u", Password: "s3cret"}},
		URL:  serve(t, reply(200, `{"status":"success","warnings":["w s3cret"],"infos":["i s3cret"],"data":{"resultType":"vector","result":[]}}`)),
	})
	a, err := c.Query(context.Background(), "up", at)
	if err != nil || a.Warnings[0] != "w (hidden)" || a.Infos[0] != "i (hidden)" {
		t.Errorf("%+v %v", a, err)
	}
}

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

// A secret can be the beginning of another one.
func TestRedactedTextHasNoRestOfASecret(t *testing.T) {
	for _, secrets := range [][]config.Secret{{"abcd", "abcdEFGH"}, {"abcdEFGH", "abcd"}} {
		h := &config.Headers{Headers: map[string]config.Header{"X-Key": {Secrets: secrets}}}
		r := newRedactor(config.HTTPClientConfig{HTTPHeaders: h})
		if got := r.text("keys abcdEFGH and abcd"); got != "keys (hidden) and (hidden)" {
			t.Errorf("%v: %q", secrets, got)
		}
		if got := r.text("key abcdEF" + ellipsis); got != "key (hidden)" {
			t.Errorf("%v, cut off: %q", secrets, got)
		}
	}
}

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
			for _, body := range []string{
				`{"status":"error","error":"you said %s"}`, `{"status":"error","error":"you said ` + strings.Repeat(" ", 290) + `%s"}`,
				`{"status":"error","error":"you said ` + strings.Repeat("x", maxMessageBytes-14) + `%s"}`, "<html>%s</html>", "%s",
			} {
				t.Run(fmt.Sprint(name, status), func(t *testing.T) {
					var sent string
					c := newClient(t, Config{HTTP: tc.http, URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
						sent = cmp.Or(r.Header.Get("Authorization"), r.Header.Get("X-Key"))
						reply(status, fmt.Sprintf(body, sent))(w, r)
					})})
					_, err := c.Query(context.Background(), "up", at)
					if sent != tc.sent {
						t.Errorf("sent %q, want %q", sent, tc.sent)
					}
					if err == nil || strings.Contains(err.Error(), "you said") != strings.Contains(body, "you said") {
						t.Fatalf("want the message of Prometheus, and no other text of the body: %v", err)
					}
					if shown := strings.Fields(tc.sent); strings.Contains(err.Error(), shown[len(shown)-1]) {
						t.Errorf("the error shows the secret: %v", err)
					}
				})
			}
		}
	}
}

// An access token is in no configuration, and the scheme before it need not be in the text.
func TestQueryRedactsAccessTokens(t *testing.T) {
	for _, status := range []int{200, 401, 422} {
		c := newClient(t, Config{
			HTTP: config.HTTPClientConfig{OAuth2: &config.OAuth2{
				ClientID: "id", ClientSecret: "s3cret", TokenURL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, `{"access_token":"0paque-token","token_type":"Bearer","expires_in":3600}`)
				}),
			}},
			URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
				reply(status, fmt.Sprintf(`{"status":"error","error":"the token %s has expired"}`, token))(w, r)
			}),
		})
		_, err := c.Query(t.Context(), "up", at)
		if err == nil || !strings.Contains(err.Error(), "the token (hidden) has expired") {
			t.Errorf("status %d: %v", status, err)
		}
	}
}

func TestRedactorHidesTheBeginningOfASecretAtTheEndOfACutText(t *testing.T) {
	r := newRedactor(config.HTTPClientConfig{Authorization: &config.Authorization{Type: "Bearer", Credentials: "s3cret-token"}})
	for text, want := range map[string]string{
		"you said s3cret-t" + ellipsis:          "you said (hidden)",
		"you said s3cret-token s" + ellipsis:    "you said (hidden) (hidden)",
		"you said something else" + ellipsis:    "you said something else" + ellipsis,
		"a complete text may end with an s3cre": "a complete text may end with an s3cre",
	} {
		if got := r.text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
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

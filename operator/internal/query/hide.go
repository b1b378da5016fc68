package query

import (
	"encoding/base64"
	"os"
	"regexp"
	"strings"

	"github.com/prometheus/common/config"
)

// credential is what follows the scheme in an Authorization header.
var credential = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[-A-Za-z0-9._~+/=]{16,}`)

// hider takes secrets out of what a server answers, which may repeat what it was
// sent: answers' texts end up in conditions, events and logs.
type hider struct {
	secrets *strings.Replacer
	file    string // that holds a secret, which may have become another one
}

func newHider(h config.HTTPClientConfig) hider {
	var pairs []string
	var file string
	add := func(secrets ...config.Secret) {
		for _, s := range secrets {
			if len(s) >= 4 {
				pairs = append(pairs, string(s), "(hidden)")
			}
		}
	}
	if b := h.BasicAuth; b != nil {
		add(b.Password, config.Secret(base64.StdEncoding.EncodeToString([]byte(b.Username+":"+string(b.Password)))))
	}
	if a := h.Authorization; a != nil {
		add(a.Credentials)
		file = a.CredentialsFile
	}
	if o := h.OAuth2; o != nil {
		add(o.ClientSecret)
	}
	if h.HTTPHeaders != nil {
		for _, header := range h.HTTPHeaders.Headers {
			add(header.Secrets...)
		}
	}
	return hider{strings.NewReplacer(pairs...), file}
}

// text is one line without secrets, short enough for a condition.
func (h hider) text(s string) string {
	if content, err := os.ReadFile(h.file); err == nil {
		if secret := strings.TrimSpace(string(content)); secret != "" {
			s = strings.ReplaceAll(s, secret, "(hidden)")
		}
	}
	return clip(credential.ReplaceAllString(h.secrets.Replace(s), "$1 (hidden)"))
}

func (h hider) texts(list []string) []string {
	for i := range list {
		list[i] = h.text(list[i])
	}
	return list
}

func (h hider) failure(e *Error) *Error {
	if e != nil {
		e.Message = h.text(e.Message)
	}
	return e
}

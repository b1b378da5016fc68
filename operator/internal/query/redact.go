package query

import (
	"encoding/base64"
	"os"
	"regexp"
	"strings"

	"github.com/prometheus/common/config"
)

const redacted = "(hidden)"

// credential matches the credential after the scheme of an Authorization header.
var credential = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[-A-Za-z0-9._~+/=]{16,}`)

// redactor removes secrets from text of a response. A server or proxy can echo the
// credentials of a request, and its text ends up in conditions, events and logs.
type redactor struct {
	secrets *strings.Replacer
	values  []string // the secrets
	// file holds a secret that can rotate. It is read again for each text.
	file string
}

func newRedactor(h config.HTTPClientConfig) redactor {
	var pairs []string
	var file string
	add := func(secrets ...config.Secret) {
		for _, s := range secrets {
			if len(s) >= 4 {
				pairs = append(pairs, string(s), redacted)
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
	var values []string
	for i := 0; i < len(pairs); i += 2 {
		values = append(values, pairs[i])
	}
	return redactor{strings.NewReplacer(pairs...), values, file}
}

// text returns s as one line without secrets, short enough for a condition.
func (r redactor) text(s string) string {
	s = r.secrets.Replace(s)
	for _, secret := range r.values {
		s = cutPrefixAtEnd(s, secret)
	}
	// A file that can't be read was not sent to the server either.
	if content, err := os.ReadFile(r.file); r.file != "" && err == nil {
		if secret := strings.TrimSpace(string(content)); secret != "" {
			s = cutPrefixAtEnd(strings.ReplaceAll(s, secret, redacted), secret)
		}
	}
	return Clip(credential.ReplaceAllString(s, "$1 "+redacted))
}

// cutPrefixAtEnd removes the beginning of a secret from the end of a text that is cut off.
func cutPrefixAtEnd(s, secret string) string {
	whole, isCut := strings.CutSuffix(s, ellipsis)
	if !isCut {
		return s
	}
	for n := len(secret) - 1; n > 0; n-- {
		if rest, ok := strings.CutSuffix(whole, secret[:n]); ok {
			return rest + redacted
		}
	}
	return s
}

// texts redacts the texts in place.
func (r redactor) texts(texts []string) []string {
	for i := range texts {
		texts[i] = r.text(texts[i])
	}
	return texts
}

// failure redacts the message of e, which may be nil.
func (r redactor) failure(e *Error) *Error {
	if e != nil {
		e.Message = r.text(e.Message)
	}
	return e
}

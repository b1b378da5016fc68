package query

import (
	"cmp"
	"encoding/base64"
	"os"
	"regexp"
	"slices"
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
	values  []string // the secrets, the longest first
	// file holds a secret that can rotate. It is read again for each text.
	file string
}

func newRedactor(h config.HTTPClientConfig) redactor {
	var values []string
	var file string
	add := func(secrets ...config.Secret) {
		for _, s := range secrets {
			if len(s) >= 4 {
				values = append(values, string(s))
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
	// The longest secret first: one secret can be the beginning of another, and its rest would
	// stay in the text.
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, secret := range values {
		pairs = append(pairs, secret, redacted)
	}
	return redactor{strings.NewReplacer(pairs...), values, file}
}

// text returns s as one line without secrets, short enough for a condition.
func (r redactor) text(s string) string {
	secrets, rotating := r.values, ""
	// A file that can't be read was not sent to the server either.
	if content, err := os.ReadFile(r.file); r.file != "" && err == nil {
		if rotating = strings.TrimSpace(string(content)); rotating != "" {
			secrets = append(slices.Clone(secrets), rotating)
		}
	}
	s = r.secrets.Replace(cutSecretAtEnd(s, secrets))
	if rotating != "" {
		s = strings.ReplaceAll(s, rotating, redacted)
	}
	return Clip(credential.ReplaceAllString(s, "$1 "+redacted))
}

// cutSecretAtEnd removes a secret, or its beginning, from the end of a text that is cut off. Of
// several, it removes the longest: the beginning of one can be the end of another.
func cutSecretAtEnd(s string, secrets []string) string {
	whole, isCut := strings.CutSuffix(s, ellipsis)
	if !isCut {
		return s
	}
	longest := 0
	for _, secret := range secrets {
		for n := len(secret); n > longest; n-- {
			if strings.HasSuffix(whole, secret[:n]) {
				longest = n
			}
		}
	}
	if longest == 0 {
		return s
	}
	return whole[:len(whole)-longest] + redacted
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

package query

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/config"
)

const redacted = "(hidden)"

// credential matches the credential after the scheme of an Authorization header.
var credential = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[-A-Za-z0-9._~+/=]{16,}`)

// redactor removes secrets from text of a response. A server or proxy can echo the
// credentials of a request, and its text ends up in conditions, events and logs. It holds the
// secrets, the longest first: one can be the beginning of another, and its rest would stay in the
// text.
type redactor []string

// newRedactor returns the redactor for the secrets of a configuration.
func newRedactor(h config.HTTPClientConfig) redactor {
	var r redactor
	if b := h.BasicAuth; b != nil {
		r = r.add(string(b.Password))
	}
	if a := h.Authorization; a != nil {
		r = r.add(string(a.Credentials))
	}
	if o := h.OAuth2; o != nil {
		r = r.add(string(o.ClientSecret))
	}
	if h.HTTPHeaders != nil {
		for _, header := range h.HTTPHeaders.Headers {
			for _, secret := range header.Secrets {
				r = r.add(string(secret))
			}
		}
	}
	return r
}

// with returns a redactor that also removes the credential of the request, such as a token that the
// configuration does not have.
func (r redactor) with(sent *http.Request) redactor {
	_, credential, _ := strings.Cut(sent.Header.Get("Authorization"), " ")
	return r.add(credential)
}

// add returns a redactor with one more secret. Short ones are ignored: they occur in other words.
func (r redactor) add(secret string) redactor {
	if len(secret) < 4 || slices.Contains(r, secret) {
		return r
	}
	at, _ := slices.BinarySearchFunc(r, len(secret), func(s string, n int) int { return cmp.Compare(n, len(s)) })
	return slices.Insert(slices.Clone(r), at, secret)
}

// text returns s as one line without secrets, short enough for a condition.
func (r redactor) text(s string) string {
	s = cutSecretAtEnd(s, r)
	for _, secret := range r {
		s = strings.ReplaceAll(s, secret, redacted)
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

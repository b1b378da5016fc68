package ui

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// access admits requests. token is the one for requests to the hub; "" = the user's own credentials. If the request is not
// admitted, admit has responded.
type access interface {
	admit(w http.ResponseWriter, r *http.Request) (token string, ok bool)
}

// bearerAccess admits requests with a bearer token. The API server decides if the token is valid.
type bearerAccess struct{}

func (bearerAccess) admit(w http.ResponseWriter, r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		unauthorized(w, "this request has no bearer token: open the page through the proxy that authenticates users")
		return "", false
	}
	return token, true
}

func unauthorized(w http.ResponseWriter, text string) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, text, http.StatusUnauthorized)
}

// keyAccess admits browsers that have opened the printed address, on the machine itself. Its check of the Host header
// keeps out pages of others whose name resolves to 127.0.0.1.
type keyAccess struct {
	port int
	key  string
	mu   sync.Mutex
	once string // opens the pages once; a browser's command line, which shows it, is visible to other users
}

func newKeyAccess(port int) *keyAccess { return &keyAccess{port: port, key: rand.Text()} }

func (k *keyAccess) url(key string) string {
	return fmt.Sprintf("http://127.0.0.1:%d/?key=%s", k.port, key)
}

// issueOnce returns a key that is valid once.
func (k *keyAccess) issueOnce() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.once = rand.Text()
	return k.once
}

func (k *keyAccess) isValid(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.once != "" && isEqual(key, k.once) {
		k.once = ""
		return true
	}
	return isEqual(key, k.key)
}

func isEqual(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func (k *keyAccess) admit(w http.ResponseWriter, r *http.Request) (string, bool) {
	hosts := []string{fmt.Sprintf("127.0.0.1:%d", k.port), fmt.Sprintf("localhost:%d", k.port)}
	if !slices.Contains(hosts, strings.ToLower(r.Host)) {
		http.Error(w, "this address is not served: use the one that kubectl plimsoll ui printed", http.StatusMisdirectedRequest)
		return "", false
	}
	name := fmt.Sprintf("plimsoll-ui-%d", k.port) // browsers send cookies to all ports of a host
	cookie, err := r.Cookie(name)
	isKnown := err == nil && isEqual(cookie.Value, k.key)
	query := r.URL.Query()
	if isKnown && !query.Has("key") {
		return "", true
	}
	if k.isValid(query.Get("key")) || isKnown { // the address bar must not show the key
		http.SetCookie(w, &http.Cookie{Name: name, Value: k.key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return "", false
	}
	http.Error(w, "open the address that kubectl plimsoll ui printed: it contains the key of these pages", http.StatusForbidden)
	return "", false
}

// user identifies who sends a request, without the token.
type user [sha256.Size]byte

func userOf(token string) user { return sha256.Sum256([]byte(token)) }

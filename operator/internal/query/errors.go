package query

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Reason classifies a failed query. It is used as the reason of conditions.
type Reason string

// Reasons of an Error.
const (
	ReasonBadQuery     Reason = "BadQuery"     // the source rejects or can't evaluate the expression
	ReasonTimeout      Reason = "Timeout"      // no response in time
	ReasonRateLimited  Reason = "RateLimited"  // status 429
	ReasonUnavailable  Reason = "Unavailable"  // status 5xx
	ReasonUnreachable  Reason = "Unreachable"  // no connection
	ReasonUnauthorized Reason = "Unauthorized" // status 401 or 403, or the credentials can't be obtained
	ReasonBadTLS       Reason = "BadTLS"       // one side rejects the certificate of the other
	ReasonBadResponse  Reason = "BadResponse"  // the response is not Prometheus JSON
	ReasonTooLarge     Reason = "TooLarge"     // more than maxResponseBytes or maxSeries
	ReasonCanceled     Reason = "Canceled"     // the caller canceled the query
)

// Error is the error of a failed query.
type Error struct {
	Reason  Reason
	Status  int // HTTP status; 0 without a response
	Message string
}

// Error returns "Reason: message".
func (e *Error) Error() string { return string(e.Reason) + ": " + e.Message }

// ReasonOf returns the reason of err, or BadResponse if err is not an *Error.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ReasonBadResponse
}

// isTransient reports whether a retry can succeed.
func (e *Error) isTransient() bool {
	switch e.Reason {
	case ReasonRateLimited, ReasonUnavailable, ReasonUnreachable:
		return true
	default:
		return false
	}
}

// transportError classifies an error of the HTTP client. Its message omits the URL, which
// can contain secrets.
func transportError(err error) *Error {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	return &Error{Reason: transportReason(err), Message: localAddress.ReplaceAllString(err.Error(), "")}
}

func transportReason(err error) Reason {
	var (
		netErr  net.Error
		certErr *tls.CertificateVerificationError
		authErr x509.UnknownAuthorityError
		record  tls.RecordHeaderError
		remote  *net.OpError
		fileErr *fs.PathError
	)
	switch {
	case errors.Is(err, errTooLarge):
		return ReasonTooLarge
	case errors.Is(err, context.Canceled):
		return ReasonCanceled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return ReasonTimeout
	case errors.As(err, &certErr), errors.As(err, &authErr), errors.As(err, &record),
		// crypto/tls reports an alert of the server with this Op, for example if the
		// client certificate is missing.
		errors.As(err, &remote) && remote.Op == "remote error":
		return ReasonBadTLS
	case errors.As(err, &fileErr),
		// golang.org/x/oauth2 has no error type that covers all failures of a token request.
		strings.Contains(err.Error(), "oauth2"):
		return ReasonUnauthorized
	}
	return ReasonUnreachable
}

// localAddress matches the local end of a connection. Its port differs in each attempt;
// without it, the same fault always has the same message.
var localAddress = regexp.MustCompile(`\S+:\d+->`)

// statusError classifies an HTTP status. message comes from the response body.
func statusError(status int, message string) *Error {
	reason := ReasonBadResponse
	switch {
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity:
		reason = ReasonBadQuery
	case status == http.StatusTooManyRequests:
		reason = ReasonRateLimited
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		reason = ReasonUnauthorized
	case status >= 500:
		reason = ReasonUnavailable
	}
	if message == "" {
		message = http.StatusText(status)
	}
	return &Error{Reason: reason, Status: status, Message: message}
}

// clip shortens a message to one line of at most 300 characters, to fit a condition.
func clip(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if r := []rune(s); len(r) > 300 {
		return string(r[:297]) + "..."
	}
	return s
}

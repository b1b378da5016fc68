package query

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Reason says in one word why a question failed; it serves as a condition's reason.
type Reason string

// The reasons.
const (
	ReasonBadQuery     Reason = "BadQuery"     // the source refuses or can't evaluate the expression
	ReasonTimeout      Reason = "Timeout"      // no answer in time
	ReasonRateLimited  Reason = "RateLimited"  // 429
	ReasonUnavailable  Reason = "Unavailable"  // 5xx
	ReasonUnreachable  Reason = "Unreachable"  // no connection
	ReasonUnauthorized Reason = "Unauthorized" // 401, 403, or no token to be had
	ReasonBadTLS       Reason = "BadTLS"       // a certificate is not accepted
	ReasonBadResponse  Reason = "BadResponse"  // the answer is not Prometheus's JSON
	ReasonTooLarge     Reason = "TooLarge"     // beyond maxResponseBytes or maxSeries
	ReasonCanceled     Reason = "Canceled"     // we gave up ourselves
)

// Error is a failed question.
type Error struct {
	Reason  Reason
	Status  int // HTTP status, 0 when there was none
	Message string
}

// Error is "Reason: message".
func (e *Error) Error() string { return string(e.Reason) + ": " + e.Message }

// ReasonOf returns why err happened, BadResponse when it doesn't say.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ReasonBadResponse
}

// retriable says whether the same question may get an answer later.
func (e *Error) retriable() bool {
	switch e.Reason {
	case ReasonRateLimited, ReasonUnavailable, ReasonUnreachable:
		return true
	default:
		return false
	}
}

// transportError judges an error from the HTTP client. The URL is left out: it
// may hold what must not be logged.
func transportError(err error) *Error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	var (
		netErr  net.Error
		certErr *tls.CertificateVerificationError
		authErr x509.UnknownAuthorityError
		record  tls.RecordHeaderError
		remote  *net.OpError // the server's alert, such as for a missing client certificate
	)
	reason := ReasonUnreachable
	switch {
	case errors.Is(err, errTooLarge):
		reason = ReasonTooLarge
	case errors.Is(err, context.Canceled):
		reason = ReasonCanceled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		reason = ReasonTimeout
	case errors.As(err, &certErr), errors.As(err, &authErr), errors.As(err, &record),
		errors.As(err, &remote) && remote.Op == "remote error":
		reason = ReasonBadTLS
	case strings.Contains(err.Error(), "oauth2"), strings.Contains(err.Error(), "unable to read"):
		reason = ReasonUnauthorized
	}
	return &Error{Reason: reason, Message: from.ReplaceAllString(err.Error(), "")}
}

// from is our end of a connection, another one at each try: one fault has one message.
var from = regexp.MustCompile(`\S+:\d+->`)

// statusError judges an HTTP status with the message of its body.
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

// clip keeps a message short enough for a condition, on one line.
func clip(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if r := []rune(s); len(r) > 300 {
		return string(r[:297]) + "..."
	}
	return s
}

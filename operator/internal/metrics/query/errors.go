package query

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Reason classifies a failed query. It is used as the reason of conditions.
type Reason string

// Reasons of an Error.
const (
	ReasonBadQuery     Reason = "BadQuery"         // the source rejects or can't evaluate the expression
	ReasonTimeout      Reason = "Timeout"          // no response in time
	ReasonRateLimited  Reason = "RateLimited"      // status 429
	ReasonUnavailable  Reason = "Unavailable"      // status 5xx
	ReasonUnreachable  Reason = "Unreachable"      // no connection
	ReasonUnauthorized Reason = "Unauthorized"     // status 401 or 403, or the credentials can't be obtained
	ReasonBadTLS       Reason = "BadTLS"           // one side rejects the certificate of the other
	ReasonBadResponse  Reason = "BadResponse"      // the response is not Prometheus JSON
	ReasonTooLarge     Reason = "TooLarge"         // more bytes than the client accepts, or more than maxSeries
	ReasonRedirected   Reason = "Redirected"       // the server redirects; redirects are not followed
	ReasonForbidden    Reason = "ForbiddenAddress" // the host resolves to an address of the operator's machine or of cloud metadata
	ReasonCanceled     Reason = "Canceled"         // the caller canceled the query
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
	return &Error{Reason: transportReason(err), Message: transportMessage(err)}
}

// transportMessage describes an error of the HTTP client without text of the server, which
// the HTTP client puts into quotes.
func transportMessage(err error) string {
	var (
		urlErr    *url.Error
		address   *addressError
		redirect  *redirectError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		token     *tokenError
	)
	switch {
	case errors.As(err, &token):
		return token.Error()
	case errors.As(err, &address):
		return address.Error()
	case errors.As(err, &redirect):
		return redirect.Error()
	case errors.As(err, &authority):
		return "the certificate of the server is signed by an unknown authority: set tls.ca"
	case errors.As(err, &host):
		return "the certificate of the server is not valid for the host name " + host.Host + ": set tls.serverName or the name in the certificate"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return expiryMessage(invalid.Cert)
	case errors.Is(err, errBadJSON), errors.Is(err, errEncoding), errors.Is(err, errCutOff):
		return err.Error()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errCutOff.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no complete response in time: make the query cheaper, or raise advanced.timeoutSeconds"
	case errors.As(err, &urlErr):
		err = urlErr.Err
	}
	text := streamNumber.ReplaceAllString(localAddress.ReplaceAllString(err.Error(), ""), "")
	return quoted.ReplaceAllString(text, "(text of the server)")
}

// expiryMessage describes a certificate that is not valid now. The text of the library has the
// current time, so that it would differ in each attempt.
func expiryMessage(cert *x509.Certificate) string {
	which := "the certificate of the server"
	if cert.IsCA {
		which = "the certificate of the server's authority"
	}
	return fmt.Sprintf("%s is valid from %s to %s: renew it, or check the clocks",
		which, cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339))
}

var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"?`)

func transportReason(err error) Reason {
	var (
		netErr  net.Error
		certErr *tls.CertificateVerificationError
		authErr x509.UnknownAuthorityError
		record  tls.RecordHeaderError
		remote  *net.OpError
		fileErr *fs.PathError
		address *addressError
		moved   *redirectError
		token   *tokenError
	)
	switch {
	case errors.Is(err, errTooLarge):
		return ReasonTooLarge
	case errors.Is(err, errBadJSON), errors.Is(err, errEncoding), errors.Is(err, errCutOff):
		return ReasonBadResponse
	case errors.As(err, &address):
		return ReasonForbidden
	case errors.As(err, &moved):
		return ReasonRedirected
	case errors.Is(err, context.Canceled):
		return ReasonCanceled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return ReasonTimeout
	case errors.As(err, &certErr), errors.As(err, &authErr), errors.As(err, &record),
		// crypto/tls reports an alert of the server with this Op, for example if the
		// client certificate is missing.
		errors.As(err, &remote) && remote.Op == "remote error":
		return ReasonBadTLS
	case errors.As(err, &fileErr), errors.As(err, &token):
		return ReasonUnauthorized
	}
	return ReasonUnreachable
}

// localAddress matches the local end of a connection, and streamNumber the number of a stream of
// HTTP/2. They differ in each attempt; without them, the same fault always has the same message.
var (
	localAddress = regexp.MustCompile(`\S+:\d+->`)
	streamNumber = regexp.MustCompile(`stream ID \d+; | LastStreamID=\d+,`)
)

// statusError classifies an HTTP status. message comes from a response body with the status
// "error". It is empty if another server or a proxy responded: such a response says nothing about
// the query.
func statusError(status int, message string) *Error {
	reason := ReasonBadResponse
	switch {
	case (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity) && message != "":
		reason = ReasonBadQuery
	case status == http.StatusTooManyRequests:
		reason = ReasonRateLimited
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		reason = ReasonUnauthorized
	case status >= 500:
		reason = ReasonUnavailable
	}
	if message == "" {
		message = strings.TrimSpace(fmt.Sprintf("status %d %s", status, http.StatusText(status))) + statusAdvice(reason)
	}
	return &Error{Reason: reason, Status: status, Message: message}
}

// statusAdvice says what to check if a response has a status and no text of Prometheus.
func statusAdvice(reason Reason) string {
	switch reason { //nolint:exhaustive // the source decides about the others
	case ReasonUnauthorized:
		return ": check spec.auth and spec.tenant of the MetricsSource"
	case ReasonRateLimited:
		return ": the source limits queries. Raise its limit, or lower advanced.queriesPerSecond"
	case ReasonBadResponse:
		return ": check that the URL is the base URL of the query API, with the right scheme"
	}
	return ""
}

// Clip returns a message as one line of at most 300 printable characters, to fit a
// condition, an event and a terminal.
func Clip(s string) string {
	s = printableText(strings.Join(strings.Fields(s), " "))
	if r := []rune(s); len(r) > 300 {
		return string(r[:297]) + "..."
	}
	return s
}

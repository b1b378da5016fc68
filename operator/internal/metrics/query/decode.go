package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
)

const (
	// maxErrorBytes is the part of a response with an error status that is read.
	maxErrorBytes = 64 << 10
	// completeSamples is the number of samples with all labels, if Config.AllLabels is
	// false.
	completeSamples = 10
	// sampleBytes is the approximate size of a sample in memory, without its text. Growing
	// slices hold up to twice their content.
	sampleBytes = 96
	// labelBytes is the approximate size of a label in memory, without its value.
	labelBytes = 48
	// maxLabels is the largest number of labels of a series. A map of millions takes several
	// times labelBytes for each while it grows.
	maxLabels = 1000
)

// decoder decodes the response of a query while it is received. It stops at the first
// limit.
type decoder struct {
	*jsonScanner
	memory       *reservation
	clusterLabel string
	cluster      string // value of clusterLabel in every sample; "" = as in the response
	allLabels    bool
	maxSeries    int
	isRange      bool // series have many values
	redact       redactor

	status, errorText string
	resultType        string
	warnings, infos   annotations
	partialReason     []byte // why some of the data is missing; empty = it is complete
	gaps              map[uint64]bool
	series            int
	histograms        int  // series without a single value
	scalarParts       int  // elements of the result that are no series
	hasData           bool // the response has the key "data"
	hasResult         bool // the response has a list of series, which may be empty
	samples           []Sample
	matrix            []Series
	names             map[string]string // label names, so that each is in memory once
	// badValue is what is wrong with a value that is not [time, "number"].
	badValue string
	failure  *Error
}

// decodeBody decodes the envelope of a response. data reads the value of the key "data".
// A failed request is an *Error with the text that Prometheus has for it: that of a body
// with the status "error". Other text of the body never becomes part of an error: it may
// come from another server.
func (d *decoder) decodeBody(resp *http.Response, data func()) *Error {
	body := io.Reader(resp.Body)
	if resp.StatusCode/100 != 2 {
		body = io.LimitReader(body, maxErrorBytes)
		data = func() { d.skip() }
	}
	d.jsonScanner = newJSONScanner(body)
	defer d.close()
	if d.peek() == '{' {
		d.object(func(key []byte) { d.envelopeField(string(key), data) })
		d.finish()
	} else {
		d.fail(errBadJSON)
	}
	switch {
	case d.failure != nil:
		return d.failure
	case resp.StatusCode/100 != 2 && d.status == "error":
		return statusError(resp.StatusCode, cmp.Or(d.errorText, noErrorText))
	case resp.StatusCode/100 != 2:
		return statusError(resp.StatusCode, "")
	case errors.Is(d.err, errBadJSON) || d.err == nil && d.status != "success" && d.status != "error":
		return notPrometheusJSON(resp)
	case d.err != nil:
		return transportError(d.err)
	case d.status == "success" && d.errorText != "":
		return &Error{Reason: ReasonBadResponse, Status: resp.StatusCode, Message: "the response has the status success and an error: " + d.errorText}
	case d.status == "error":
		return statusError(http.StatusUnprocessableEntity, cmp.Or(d.errorText, noErrorText))
	}
	return nil
}

// noErrorText is the message of a response with the status "error" and without a text.
const noErrorText = "the source reports an error without text"

// requireFirst fails if an object has a key twice. Parsers of JSON differ in which value counts.
func (d *decoder) requireFirst(isRepeated bool) {
	if isRepeated {
		d.fail(errBadJSON)
	}
}

func (d *decoder) envelopeField(key string, data func()) {
	switch key {
	case "status":
		d.requireFirst(d.status != "")
		d.status = d.textOrSkip()
	case "error":
		d.errorText = d.message()
	case "warnings":
		d.readWarnings()
	case "infos":
		d.annotations(&d.infos, func([]byte) {})
	case "isPartial":
		d.readPartialMark()
	case "data":
		d.requireFirst(d.hasData)
		d.hasData = true
		data()
	default:
		d.skip()
	}
}

// stop ends the decoding because of a limit.
func (d *decoder) stop(failure *Error) {
	if d.failure == nil {
		d.failure = failure
	}
	d.fail(errTooLarge)
}

// grow accounts for n bytes of memory.
func (d *decoder) grow(n int) {
	if failure := d.memory.grow(n); failure != nil {
		d.stop(failure)
	}
}

// decodeInstant decodes the response of an instant query.
func (d *decoder) decodeInstant(resp *http.Response) (Result, *Error) {
	failure := d.decodeBody(resp, func() { d.result(d.instantElement) })
	result := Result{Warnings: d.redact.texts(d.warnings.list()), Infos: d.redact.texts(d.infos.list()), Partial: len(d.partialReason) > 0}
	if result.Partial {
		result.PartialReason = d.redact.text(shortened(d.partialReason, maxMessageBytes))
		result.Gaps = slices.Sorted(maps.Keys(d.gaps))
	}
	switch {
	case failure != nil:
	case d.resultType == "":
		failure = &Error{Reason: ReasonBadResponse, Status: resp.StatusCode, Message: "the response has no resultType"}
	case d.resultType != "vector" && d.resultType != "scalar":
		failure = &Error{Reason: ReasonBadQuery, Status: resp.StatusCode, Message: "the query must return an instant vector, returns " + typeName(d.resultType)}
	case !d.hasResult:
		failure = &Error{Reason: ReasonBadResponse, Status: resp.StatusCode, Message: "the response has no result"}
	case d.badValue != "":
		failure = badValue(resp.StatusCode, d.badValue)
	case d.resultType == "vector" && d.scalarParts > 0, d.resultType == "scalar" && (d.scalarParts != 2 || d.series > 0):
		failure = &Error{Reason: ReasonBadResponse, Status: resp.StatusCode, Message: "the result is not " + typeName(d.resultType)}
	default:
		result.Samples = d.samples
		if d.histograms > 0 {
			result.Warnings = append(result.Warnings, fmt.Sprintf("%d series are native histograms, which have no single value: use histogram_quantile or histogram_count", d.histograms))
		}
	}
	return result, failure
}

// decodeRange decodes the response of a range query.
func (d *decoder) decodeRange(resp *http.Response) (RangeResult, *Error) {
	d.isRange = true
	failure := d.decodeBody(resp, func() { d.result(d.seriesElement) })
	result := RangeResult{Warnings: d.redact.texts(d.warnings.list()), Infos: d.redact.texts(d.infos.list())}
	switch {
	case failure != nil:
	case d.resultType != "matrix":
		failure = &Error{Reason: ReasonBadResponse, Status: resp.StatusCode, Message: "a range query must return a matrix, returns " + typeName(d.resultType)}
	case !d.hasResult:
		failure = &Error{Reason: ReasonBadResponse, Status: resp.StatusCode, Message: "the response has no result"}
	case d.badValue != "":
		failure = badValue(resp.StatusCode, d.badValue)
	default:
		result.Series = d.matrix
	}
	return result, failure
}

// decodeStrings decodes a response with a list of strings, such as label values.
func (d *decoder) decodeStrings(resp *http.Response) (values []string, failure *Error) {
	failure = d.decodeBody(resp, func() {
		d.array(func() {
			d.countSeries()
			values = append(values, d.textOrSkip())
			d.grow(16 + len(values[len(values)-1]))
		})
	})
	return values, failure
}

// decodeVersion decodes the build information of a server.
func (d *decoder) decodeVersion(resp *http.Response) (version string, failure *Error) {
	failure = d.decodeBody(resp, func() {
		d.object(func(key []byte) {
			if string(key) == "version" {
				version = d.textOrSkip()
				return
			}
			d.skip()
		})
	})
	return version, failure
}

// result reads the key "data" of a query. element reads an element of its result.
func (d *decoder) result(element func()) {
	if d.peek() != '{' {
		d.skip()
		return
	}
	d.object(func(key []byte) {
		switch {
		case string(key) == "resultType":
			d.requireFirst(d.resultType != "")
			d.resultType = d.textOrSkip()
		case string(key) == "result" && d.peek() == '[':
			d.requireFirst(d.hasResult)
			d.hasResult = true
			d.array(element)
		default:
			d.skip()
		}
	})
}

func badValue(status int, problem string) *Error {
	return &Error{Reason: ReasonBadResponse, Status: status, Message: "a value in the response " + problem}
}

// typeName returns the article and name of a result type that Prometheus has.
func typeName(resultType string) string {
	if slices.Contains([]string{"vector", "matrix", "scalar", "string", "streams"}, resultType) {
		return "a " + resultType
	}
	return "another type"
}

// notPrometheusJSON is the error of a successful response of something that does not speak
// the protocol, such as the login page of a proxy.
func notPrometheusJSON(resp *http.Response) *Error {
	message := "the response is not Prometheus JSON: check that the URL is the base URL of the query API"
	if isHTML(resp.Header) {
		message = "the response is an HTML page, such as a login page, and not Prometheus JSON: check the URL and the credentials"
	}
	return &Error{Reason: ReasonBadResponse, Status: resp.StatusCode, Message: message}
}

// decoder returns a decoder for a response of the endpoint, with the limits of the source. The
// caller must release its memory.
func (c *Client) decoder(ctx context.Context, e *endpoint, resp *http.Response) *decoder {
	return &decoder{
		memory: &reservation{ctx: ctx}, clusterLabel: c.cfg.ClusterLabel, cluster: e.cluster, allLabels: c.cfg.AllLabels || keepsAllLabels(ctx), maxSeries: c.cfg.MaxSeries,
		redact: e.redact.with(resp.Request),
	}
}

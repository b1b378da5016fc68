package query

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// instantResponse decodes a vector in one pass. A response of another type leaves Result
// partly decoded; decodeInstant then looks at ResultType.
type instantResponse struct {
	Status string `json:"status"`
	Data   struct {
		ResultType string         `json:"resultType"`
		Result     []vectorSample `json:"result"`
	} `json:"data"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Infos    []string `json:"infos"`
}

type scalarResponse struct {
	Data struct {
		Result sampleValue `json:"result"`
	} `json:"data"`
}

type vectorSample struct {
	Metric map[string]string `json:"metric"`
	Value  sampleValue       `json:"value"`
}

// sampleValue is the value of Prometheus's pair [time, "value"].
type sampleValue struct {
	value float64
	set   bool // false for a native histogram, which has no "value"
}

// UnmarshalJSON reads [time, "value"].
func (p *sampleValue) UnmarshalJSON(b []byte) error {
	i := bytes.IndexByte(b, ',')
	if i < 0 || b[0] != '[' {
		return fmt.Errorf("a value must be [time, \"value\"], is %.40s", b)
	}
	text := bytes.TrimSpace(b[i+1 : len(b)-1])
	if len(text) < 3 || text[0] != '"' || text[len(text)-1] != '"' {
		return fmt.Errorf("a value must be a string, is %.40s", text)
	}
	v, err := strconv.ParseFloat(string(text[1:len(text)-1]), 64)
	if err != nil {
		return fmt.Errorf("a value must be a number, is %.40s", text)
	}
	p.value, p.set = v, true
	return nil
}

// UnmarshalJSON reads [time, "value"].
func (p *Point) UnmarshalJSON(b []byte) error {
	var v sampleValue
	if err := v.UnmarshalJSON(b); err != nil {
		return err
	}
	at, err := strconv.ParseFloat(string(bytes.TrimSpace(b[1:bytes.IndexByte(b, ',')])), 64)
	if err != nil {
		return fmt.Errorf("a time must be a number, is %.40s", b)
	}
	p.At, p.Value = int64(at*1000+0.5), v.value
	return nil
}

// decodeInstant decodes the response body of an instant query.
func decodeInstant(status int, body []byte, maxSeries int) (Result, *Error) {
	var resp instantResponse
	err := json.Unmarshal(body, &resp)
	switch {
	case resp.Status == "" || err != nil && !json.Valid(body):
		if status/100 != 2 {
			return Result{}, statusError(status, excerpt(body))
		}
		return Result{}, notPrometheusJSON(status, body)
	case status/100 != 2:
		return Result{}, statusError(status, resp.Error)
	case resp.Status != "success":
		return Result{}, statusError(http.StatusUnprocessableEntity, resp.Error)
	}
	result := Result{Warnings: resp.Warnings, Infos: resp.Infos}
	var failure *Error
	switch resultType := resp.Data.ResultType; {
	case resultType == "scalar":
		result.Samples, failure = decodeScalar(body)
	case resultType == "":
		failure = &Error{ReasonBadResponse, status, "the response has no resultType: " + excerpt(body)}
	case resultType != "vector":
		failure = &Error{ReasonBadQuery, status, fmt.Sprintf("the query must return an instant vector, returns a %s", resultType)}
	case err != nil:
		failure = &Error{ReasonBadResponse, status, err.Error()}
	default:
		result.Samples, failure = convertVector(resp.Data.Result, maxSeries)
	}
	return result, failure
}

func convertVector(vector []vectorSample, maxSeries int) ([]Sample, *Error) {
	if len(vector) > maxSeries {
		return nil, tooManySeries(http.StatusOK, len(vector), maxSeries)
	}
	samples := make([]Sample, 0, len(vector))
	for _, s := range vector {
		if !s.Value.set {
			continue // a native histogram has no single number to score
		}
		samples = append(samples, Sample{Labels: s.Metric, Value: s.Value.value})
	}
	return samples, nil
}

func decodeScalar(body []byte) ([]Sample, *Error) {
	var resp scalarResponse
	if err := json.Unmarshal(body, &resp); err != nil || !resp.Data.Result.set {
		return nil, &Error{ReasonBadResponse, http.StatusOK, "the scalar can't be decoded: " + excerpt(body)}
	}
	return []Sample{{Value: resp.Data.Result.value}}, nil
}

// apiResponse is the JSON envelope of Prometheus's API.
type apiResponse[T any] struct {
	Status   string   `json:"status"`
	Data     T        `json:"data"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Infos    []string `json:"infos"`
}

// decodeResponse decodes the envelope and turns every error that it reports into an
// *Error.
func decodeResponse[T any](status int, body []byte) (resp apiResponse[T], failure *Error) {
	err := json.Unmarshal(body, &resp)
	switch {
	case status/100 != 2 && resp.Status == "":
		return resp, statusError(status, excerpt(body))
	case status/100 != 2:
		return resp, statusError(status, resp.Error)
	case err != nil:
		return resp, notPrometheusJSON(status, body)
	case resp.Status != "success":
		return resp, statusError(http.StatusUnprocessableEntity, resp.Error)
	}
	return resp, nil
}

// matrix is the data of a range query. Values is empty for native histograms.
type matrix struct {
	ResultType string `json:"resultType"`
	Result     []struct {
		Metric map[string]string `json:"metric"`
		Values []Point           `json:"values"`
	} `json:"result"`
}

// decodeRange decodes the response body of a range query.
func decodeRange(status int, body []byte, maxSeries int) (RangeResult, *Error) {
	resp, failure := decodeResponse[matrix](status, body)
	switch {
	case failure != nil:
		return RangeResult{}, failure
	case resp.Data.ResultType != "matrix":
		return RangeResult{}, &Error{ReasonBadResponse, status, fmt.Sprintf("a range query must return a matrix, returns a %q", resp.Data.ResultType)}
	case len(resp.Data.Result) > maxSeries:
		return RangeResult{}, tooManySeries(status, len(resp.Data.Result), maxSeries)
	}
	result := RangeResult{Warnings: resp.Warnings, Infos: resp.Infos}
	for _, s := range resp.Data.Result {
		result.Series = append(result.Series, Series{Labels: s.Metric, Points: s.Values})
	}
	return result, nil
}

func notPrometheusJSON(status int, body []byte) *Error {
	return &Error{ReasonBadResponse, status, "the response is not Prometheus JSON: " + excerpt(body)}
}

func tooManySeries(status, got, allowed int) *Error {
	return &Error{ReasonTooLarge, status, fmt.Sprintf("the result has %d series, limits.maxSeries allows %d", got, allowed)}
}

// excerpt returns the start of a response body. It is longer than an error message:
// secrets are redacted before the message is clipped, so that no part of one remains.
func excerpt(body []byte) string { return string(body[:min(len(body), 4096)]) }

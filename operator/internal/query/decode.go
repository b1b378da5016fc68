package query

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// envelope is read in one pass: a vector's samples are decoded where they stand.
// Answers of another type leave Result half read, and are looked at again.
type envelope struct {
	Status string `json:"status"`
	Data   struct {
		ResultType string         `json:"resultType"`
		Result     []vectorSample `json:"result"`
	} `json:"data"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Infos    []string `json:"infos"`
}

type scalarEnvelope struct {
	Data struct {
		Result point `json:"result"`
	} `json:"data"`
}

type vectorSample struct {
	Metric map[string]string `json:"metric"`
	Value  point             `json:"value"`
}

// point is Prometheus's [time, "value"].
type point struct {
	value float64
	set   bool
}

// UnmarshalJSON reads [time, "value"].
func (p *point) UnmarshalJSON(b []byte) error {
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

// decode reads the body of an instant query's answer.
func decode(status int, body []byte, maxSeries int) (Answer, *Error) {
	var env envelope
	err := json.Unmarshal(body, &env)
	switch {
	case env.Status == "" || err != nil && !json.Valid(body):
		if status/100 != 2 {
			return Answer{}, statusError(status, start(body))
		}
		return Answer{}, &Error{ReasonBadResponse, status, "the answer is not Prometheus's JSON: " + start(body)}
	case status/100 != 2:
		return Answer{}, statusError(status, env.Error)
	case env.Status != "success":
		return Answer{}, statusError(http.StatusUnprocessableEntity, env.Error)
	}
	answer := Answer{Warnings: env.Warnings, Infos: env.Infos}
	var failure *Error
	switch kind := env.Data.ResultType; {
	case kind == "scalar":
		answer.Samples, failure = decodeScalar(body)
	case kind == "":
		failure = &Error{ReasonBadResponse, status, "the answer has no resultType: " + start(body)}
	case kind != "vector":
		failure = &Error{ReasonBadQuery, status, fmt.Sprintf("must answer an instant vector, answers a %s", kind)}
	case err != nil:
		failure = &Error{ReasonBadResponse, status, err.Error()}
	default:
		answer.Samples, failure = samples(env.Data.Result, maxSeries)
	}
	return answer, failure
}

func samples(list []vectorSample, maxSeries int) ([]Sample, *Error) {
	if len(list) > maxSeries {
		return nil, &Error{ReasonTooLarge, 200, fmt.Sprintf("%d series, limits.maxSeries allows %d", len(list), maxSeries)}
	}
	out := make([]Sample, 0, len(list))
	for _, s := range list {
		if !s.Value.set {
			continue // a native histogram: no number to score
		}
		out = append(out, Sample{Labels: s.Metric, Value: s.Value.value})
	}
	return out, nil
}

func decodeScalar(body []byte) ([]Sample, *Error) {
	var env scalarEnvelope
	if err := json.Unmarshal(body, &env); err != nil || !env.Data.Result.set {
		return nil, &Error{ReasonBadResponse, 200, "the scalar can't be read: " + start(body)}
	}
	return []Sample{{Value: env.Data.Result.value}}, nil
}

// start is more of an answer than a message shows: what must be hidden is hidden
// before the rest is cut off.
func start(b []byte) string { return string(b[:min(len(b), 4096)]) }

package query

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

type envelope struct {
	Status    string          `json:"status"`
	Data      json.RawMessage `json:"data"`
	ErrorType string          `json:"errorType"`
	Error     string          `json:"error"`
	Warnings  []string        `json:"warnings"`
	Infos     []string        `json:"infos"`
}

type vectorData struct {
	ResultType string          `json:"resultType"`
	Result     json.RawMessage `json:"result"`
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
	if err := json.Unmarshal(body, &env); err != nil || env.Status == "" {
		if status/100 != 2 {
			return Answer{}, statusError(status, start(body))
		}
		return Answer{}, &Error{ReasonBadResponse, status, "the answer is not Prometheus's JSON: " + start(body)}
	}
	if env.Status != "success" || status/100 != 2 {
		if status/100 == 2 {
			status = 422
		}
		return Answer{}, statusError(status, env.Error)
	}
	answer := Answer{Warnings: env.Warnings, Infos: env.Infos}
	var data vectorData
	if err := json.Unmarshal(env.Data, &data); err != nil {
		return Answer{}, &Error{ReasonBadResponse, status, err.Error()}
	}
	var err *Error
	switch data.ResultType {
	case "vector":
		answer.Samples, err = decodeVector(data.Result, maxSeries)
	case "scalar":
		answer.Samples, err = decodeScalar(data.Result)
	default:
		err = &Error{ReasonBadQuery, status, fmt.Sprintf("must answer an instant vector, answers a %s", data.ResultType)}
	}
	return answer, err
}

func decodeVector(raw []byte, maxSeries int) ([]Sample, *Error) {
	var list []vectorSample
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, &Error{ReasonBadResponse, 200, err.Error()}
	}
	if len(list) > maxSeries {
		return nil, &Error{ReasonTooLarge, 200, fmt.Sprintf("%d series, limits.maxSeries allows %d", len(list), maxSeries)}
	}
	samples := make([]Sample, 0, len(list))
	for _, s := range list {
		if !s.Value.set {
			continue // a native histogram: no number to score
		}
		samples = append(samples, Sample{Labels: s.Metric, Value: s.Value.value})
	}
	return samples, nil
}

func decodeScalar(raw []byte) ([]Sample, *Error) {
	var p point
	if err := json.Unmarshal(raw, &p); err != nil || !p.set {
		return nil, &Error{ReasonBadResponse, 200, "the scalar can't be read: " + start(raw)}
	}
	return []Sample{{Value: p.value}}, nil
}

// start is more of an answer than a message shows: what must be hidden is hidden
// before the rest is cut off.
func start(b []byte) string { return string(b[:min(len(b), 4096)]) }

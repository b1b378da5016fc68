package query

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	gocmp "github.com/google/go-cmp/cmp"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// decodeBytes decodes body as the response of an instant query. The decoder keeps all
// labels.
func decodeBytes(body io.Reader, maxSeries int) (Result, *Error) {
	d := &decoder{memory: &reservation{ctx: context.Background()}, clusterLabel: "cluster", allLabels: true, maxSeries: maxSeries}
	defer d.memory.release()
	return d.decodeInstant(&http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)})
}

func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		vector(`{"metric":{"cluster":"a"},"value":[1,"1"]}`),
		`{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}`,
		`{"status":"error"}`,
		`{"isPartial":true,"warnings":["PromQL warning: a","store b is down",{},null],"infos":["c"],"status":"success","data":{"resultType":"vector","result":[]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"NaN"]},{"metric":{},"histogram":[1,{}]}]}}`,
		`{"data":{"result":[{"value":[1.5e3,"1"],"metric":{"\u00e9":"\n\ud83d\ude00"}}],"resultType":"vector"},"status":"success","x":[true,null,-0.5,{}]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := decodeBytes(bytes.NewReader(body), 10)
		switch {
		case err != nil && (len(a.Samples) > 0 || err.Message == "" || err.Reason == ""):
			t.Fatalf("%+v with %+v", err, a)
		case err == nil && !json.Valid(body):
			t.Fatalf("%q is not JSON", body)
		case len(a.Samples) > 10:
			t.Fatalf("%d samples, want at most 10", len(a.Samples))
		case a.Partial && len(a.Warnings) == 0:
			t.Fatalf("%q is partial without a reason", body)
		}
		// The result does not depend on the boundaries of reads.
		slow, slowErr := decodeBytes(iotest.OneByteReader(bytes.NewReader(body)), 10)
		if fmt.Sprint(a, err) != fmt.Sprint(slow, slowErr) {
			t.Fatalf("%v %v\none byte at a time: %v %v", a, err, slow, slowErr)
		}
	})
}

// TestDecodeAgreesWithEncodingJSON decodes JSON that Prometheus does not write but may
// write: other orders of keys, escapes, white space, nested unknown keys.
func TestDecodeAgreesWithEncodingJSON(t *testing.T) {
	for _, body := range []string{
		`{"data":{"result":[{"value":[1.5,"2"],"metric":{"b":"2","cluster":"a"}}],"resultType":"vector"},"status":"success"}`,
		" {\t\"status\" : \"success\" ,\r\n\"extra\":{\"a\":[1,{\"b\":[]}]},\"data\":{\"resultType\":\"vector\",\"result\":[ {\"metric\":{ \"cluster\" : \"x\" },\"value\":[ 1e3 , \"-Inf\" ]} ]}} ",
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"cl\u0075ster":"\u0061\/\"\\"},"value":[1,"1"],"values":null}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["a","b"],"infos":null}`,
	} {
		body = strings.Replace(body, `,"values":null`, "", 1)
		var want struct {
			Data struct {
				Result []struct {
					Metric map[string]string
					Value  []any
				}
			}
			Warnings []string
		}
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatal(err)
		}
		got, failure := decodeBytes(iotest.HalfReader(strings.NewReader(body)), 10)
		if failure != nil || len(got.Samples) != len(want.Data.Result) || gocmp.Diff(want.Warnings, got.Warnings) != "" {
			t.Errorf("%s: %+v %v", body, got, failure)
			continue
		}
		for i, s := range want.Data.Result {
			v, _ := strconv.ParseFloat(s.Value[1].(string), 64)
			if d := gocmp.Diff(s.Metric, got.Samples[i].Labels); d != "" || got.Samples[i].Value != v || got.Samples[i].Cluster != s.Metric["cluster"] {
				t.Errorf("%s: %+v %s", body, got.Samples[i], d)
			}
		}
	}
}

func TestDecodeRejectsInvalidJSON(t *testing.T) {
	valid := vector(`{"metric":{"cluster":"a"},"value":[1,"1"]}`)
	for _, body := range []string{
		valid + "x", valid + "{}", valid[:len(valid)-1], strings.Replace(valid, `,"data"`, ` "data"`, 1), strings.Replace(valid, `"a"`, "\"a\n\"", 1),
		strings.Replace(valid, `[1,`, `[01,`, 1), strings.Replace(valid, `[1,`, `[1.,`, 1), strings.Replace(valid, `"a"`, `"\x"`, 1),
		strings.Replace(valid, `"a"`, `"\u12g4"`, 1), strings.Replace(valid, `"metric"`, `"m":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`,"metric"`, 1),
		strings.Replace(valid, `{"metric"`, `{,"metric"`, 1), strings.Replace(valid, `"metric"`, `metric`, 1),
	} {
		if _, failure := decodeBytes(strings.NewReader(body), 10); failure == nil || failure.Reason != ReasonBadResponse {
			t.Errorf("%s: %v", body, failure)
		}
	}
}

func vectorOf(n int) []byte {
	one := `{"metric":{"cluster":"cluster-%05d"},"value":[1700000000.25,"%d.5"]}`
	results := make([]string, n)
	for i := range results {
		results[i] = fmt.Sprintf(one, i, i)
	}
	return []byte(vector(results...))
}

// cannedAPI is a client_golang API client that returns a fixed body.
type cannedAPI struct{ body []byte }

func (cannedAPI) URL(string, map[string]string) *url.URL { return &url.URL{} }

func (c cannedAPI) Do(context.Context, *http.Request) (*http.Response, []byte, error) {
	return &http.Response{StatusCode: http.StatusOK}, c.body, nil
}

// BenchmarkDecode10000 compares the decoder with the API client of client_golang and with
// encoding/json, without the transport.
func BenchmarkDecode10000(b *testing.B) {
	body := vectorOf(10000)
	perSample := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10000, "ns/sample")
	}
	for _, all := range []bool{false, true} {
		b.Run(fmt.Sprintf("plimsoll/all-labels=%v", all), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d := &decoder{memory: &reservation{ctx: b.Context()}, clusterLabel: "cluster", allLabels: all, maxSeries: 10000}
				a, err := d.decodeInstant(&http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))})
				if d.memory.release(); err != nil || len(a.Samples) != 10000 {
					b.Fatal(err)
				}
			}
			perSample(b)
		})
	}
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var resp struct {
				Data struct {
					Result []struct {
						Metric map[string]string
						Value  model.SamplePair
					}
				}
			}
			if err := json.Unmarshal(body, &resp); err != nil || len(resp.Data.Result) != 10000 {
				b.Fatal(err)
			}
		}
		perSample(b)
	})
	b.Run("client_golang", func(b *testing.B) {
		api := promv1.NewAPI(cannedAPI{body})
		b.ReportAllocs()
		for b.Loop() {
			if v, _, err := api.Query(b.Context(), "up", at); err != nil || len(v.(model.Vector)) != 10000 {
				b.Fatal(err)
			}
		}
		perSample(b)
	})
}

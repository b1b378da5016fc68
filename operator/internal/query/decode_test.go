package query

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

func FuzzDecode(f *testing.F) {
	f.Add([]byte(vector(`{"metric":{"cluster":"a"},"value":[1,"1"]}`)))
	f.Add([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}`))
	f.Add([]byte(`{"status":"error"}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"NaN"]},{"metric":{},"histogram":[1,{}]}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := decodeInstant(200, body, 10)
		switch {
		case err != nil && (len(a.Samples) > 0 || err.Message == "" || err.Reason == ""):
			t.Fatalf("%+v with %+v", err, a)
		case err == nil && !json.Valid(body):
			t.Fatalf("%q is not JSON", body)
		case len(a.Samples) > 10:
			t.Fatalf("%d samples, want at most 10", len(a.Samples))
		}
	})
}

func vectorOf10000() []byte {
	one := `{"metric":{"cluster":"cluster-%05d"},"value":[1700000000.25,"%d.5"]}`
	results := make([]string, 10000)
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

// BenchmarkDecodeClientGolang10000 is the baseline for BenchmarkDecode10000.
func BenchmarkDecodeClientGolang10000(b *testing.B) {
	api := promv1.NewAPI(cannedAPI{vectorOf10000()})
	b.ReportAllocs()
	for b.Loop() {
		if v, _, err := api.Query(context.Background(), "up", at); err != nil || len(v.(model.Vector)) != 10000 {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode10000(b *testing.B) {
	body := vectorOf10000()
	b.ReportAllocs()
	for b.Loop() {
		if a, err := decodeInstant(200, body, 10000); err != nil || len(a.Samples) != 10000 {
			b.Fatal(err)
		}
	}
}

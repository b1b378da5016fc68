package collector

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Names that dcgm-exporter gave break the conventions; ours don't.
func TestOurMetricsPassPrometheusLinter(t *testing.T) {
	f := setup(t)
	f.kubelet.held["team-a/train/main"] = []string{uuid(0)}
	_, text := f.collect(t)
	allowed := map[string]bool{xidErrors.name: true}
	for _, field := range fields {
		allowed[field.name] = true
	}
	for _, e := range countedEvents {
		allowed[e.name] = true
	}
	var rare bytes.Buffer // those that this collection has no cause for
	every := page{}
	for _, o := range owns {
		if o.labels != nil && !strings.Contains(text, "# TYPE "+o.name+" ") {
			every.own(o, 1, o.labels...)
		}
	}
	plainText.write(&rare, every.families())
	problems, err := promlint.New(strings.NewReader(text + rare.String())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !allowed[p.Metric] {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for name := range allowed {
		if !strings.HasPrefix(name, "DCGM_") {
			t.Errorf("%s is allowed to break the conventions and is not dcgm-exporter's", name)
		}
	}
}

func TestOpenMetricsParserReadsAll(t *testing.T) {
	f := setup(t)
	f.kubelet.held[`team-a/tr"a\in/main`] = []string{uuid(0)}
	_, plain := f.collect(t)
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response := httptest.NewRecorder()
	f.Handler().ServeHTTP(response, request)
	parser := textparse.NewOpenMetricsParser(response.Body.Bytes(), labels.NewSymbolTable())
	series, pods := 0, map[string]bool{}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after %d series: %v", series, err)
		}
		if entry == textparse.EntrySeries {
			var l labels.Labels
			parser.Labels(&l)
			series++
			pods[l.Get("pod")] = true
		}
	}
	if want := len(regexp.MustCompile(`(?m)^[a-zA-Z]`).FindAllString(plain, -1)); series != want {
		t.Errorf("%d series, and %d in the plain format", series, want)
	}
	if !pods[`tr"a\in`] {
		t.Errorf("the pod's name was lost: %v", pods)
	}
}

// mute is a source of devices that tell no utilisation.
type mute struct{ box }

func (m *mute) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	told, err := m.box.Read(ctx, d)
	r := device.Reading{Time: told.Time}
	power, _ := told.Get(device.PowerUsage)
	r.Set(device.PowerUsage, power)
	return r, err
}

// A 0 would say that nobody idles.
func TestIdlenessIsAbsentWhereUtilisationIs(t *testing.T) {
	f := setup(t)
	f.kubelet.held["team-a/train/main"] = []string{uuid(0)}
	if families, _ := f.collect(t); value(t, families, idleAllocated.name, "uuid", uuid(0)) != 0 {
		t.Error("a busy device idles")
	}
	f.vendors[0].Source = &mute{}
	families, text := f.collect(t)
	if families[idleAllocated.name] != nil {
		t.Errorf("idleness of devices that tell no utilisation:\n%s", text)
	}
	if value(t, families, ownerInfo.name, "uuid", uuid(0), "pod", "train") != 1 {
		t.Error("the holder is not named")
	}
}

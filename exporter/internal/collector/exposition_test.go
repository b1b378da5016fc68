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
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
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

// mute is a source of devices that tell no utilization.
type mute struct{ box }

func (m *mute) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	told, err := m.box.Read(ctx, d)
	r := device.Reading{Time: told.Time}
	power, _ := told.Get(device.PowerUsage)
	r.Set(device.PowerUsage, power)
	return r, err
}

// A 0 would say that nobody idles.
func TestIdlenessIsAbsentWhereUtilizationIs(t *testing.T) {
	f := setup(t)
	f.kubelet.held["team-a/train/main"] = []string{uuid(0)}
	if families, _ := f.collect(t); value(t, families, idleAllocated.name, "uuid", uuid(0)) != 0 {
		t.Error("a busy device idles")
	}
	f.box.lost[uuid(0)] = true
	if families, text := f.collect(t); families[idleAllocated.name] != nil {
		t.Errorf("idleness of a lost device:\n%s", text)
	}
	f.vendors[0].Source = &mute{}
	families, text := f.collect(t)
	if families[idleAllocated.name] != nil {
		t.Errorf("idleness of devices that tell no utilization:\n%s", text)
	}
	if value(t, families, ownerInfo.name, "uuid", uuid(0), "pod", "train") != 1 {
		t.Error("the holder is not named")
	}
}

// A series has no label twice, whatever a pod's labels are called: Prometheus would
// refuse the whole scrape.
func TestNoPodLabelRepeatsAnother(t *testing.T) {
	f := setup(t)
	f.box.xids = []device.XID{{UUID: uuid(0), Code: 79}}
	all := map[string]string{}
	_, plain := f.collect(t)
	for _, name := range regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="`).FindAllStringSubmatch(plain, -1) {
		all[name[1]] = "mine"
	}
	f.cfg.Pods = &told{pods: map[string]podmap.Meta{"ml/train-0": {Labels: all}}}
	f.cfg.Labels = Labels{PodLabel: func(string) bool { return true }}
	f.kubelet.held["ml/train-0/main"] = []string{uuid(0)}
	f.box.xids = []device.XID{{UUID: uuid(0), Code: 79}}
	_, text := f.collect(t)
	for line := range strings.Lines(text) {
		seen := map[string]bool{}
		for _, name := range regexp.MustCompile(`[{,]([a-zA-Z_][a-zA-Z0-9_]*)="`).FindAllStringSubmatch(line, -1) {
			if seen[name[1]] {
				t.Fatalf("%s stands twice in %s", name[1], line)
			}
			seen[name[1]] = true
		}
	}
}

// What a device idled before it was allocated is nobody's waste.
func TestIdlenessCountsFromTheAllocation(t *testing.T) {
	start := time.Unix(1000, 0)
	reading := func(at time.Duration, utilization float64) device.Reading {
		r := device.Reading{Time: start.Add(at)}
		r.Set(device.GPUUtil, utilization)
		return r
	}
	a, b := []podmap.Holder{{Pod: "a"}}, []podmap.Holder{{Pod: "b"}}
	k := &known{}
	for _, step := range []struct {
		at          time.Duration
		utilization float64
		by          []podmap.Holder
		want        time.Duration
	}{
		{0, 0, nil, 0},
		{10 * time.Hour, 0, a, 0},
		{10*time.Hour + time.Minute, 0, a, time.Minute},
		{10*time.Hour + 2*time.Minute, 50, a, 0},
		{10*time.Hour + 3*time.Minute, 0, a, 0},
		{10*time.Hour + 5*time.Minute, 0, a, 2 * time.Minute},
		{10*time.Hour + 6*time.Minute, 0, b, 0},
		{10*time.Hour + 7*time.Minute, 0, b, time.Minute},
	} {
		k.trackIdle(reading(step.at, step.utilization))
		k.hold(step.by, start.Add(step.at))
		if got := k.idle(start.Add(step.at)); len(step.by) > 0 && got != step.want {
			t.Errorf("at %s: idle for %s, want %s", step.at, got, step.want)
		}
	}
}

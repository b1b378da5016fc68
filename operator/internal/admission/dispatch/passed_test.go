package dispatch

import (
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Users may write the annotation. What a gate in mode Shadow would have done is shown on terminals and in its status.
func TestForgedPassage(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	decode := func(change func(*Passed)) *Passed {
		r := Record{}.WithPassed("cluster1", "", "", 8, now, now)
		change(r.Passed)
		got, err := Decode(map[string]string{v1alpha1.DispatchAnnotation: r.Encode()})
		if err != nil {
			t.Fatal(err)
		}
		return got.Until(now).PassedUnder(now)
	}
	for name, change := range map[string]func(*Passed){
		"a long cluster":    func(p *Passed) { p.Cluster = strings.Repeat("x", 254) },
		"a long reason":     func(p *Passed) { p.Reason = strings.Repeat("x", 65) },
		"a time to come":    func(p *Passed) { p.At = now.Add(24 * time.Hour) },
		"a choice to come":  func(p *Passed) { p.ChosenAt = now.Add(24 * time.Hour) },
		"negative devices":  func(p *Passed) { p.Devices = -1 },
		"too many devices":  func(p *Passed) { p.Devices = maxCount + 1 },
		"quota of long ago": func(p *Passed) { p.QuotaReservedAt = now.Add(-time.Hour) },
	} {
		if p := decode(change); p != nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	p := decode(func(p *Passed) { p.Cluster, p.Reason, p.Message, p.Outcome = "a\x1b", "b\x1b", "c\x1b", "d\x1b" })
	if text := p.Cluster + p.Reason + p.Message + string(p.Outcome); text != "abcd" {
		t.Errorf("%q has characters that change a terminal", text)
	}
}

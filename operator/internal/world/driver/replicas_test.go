//go:build !race

package driver

import (
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// TestStandbyTakesOver loses the process that leads while jobs are on their way.
func TestStandbyTakesOver(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault world.Fault
		// earliest and latest are the times in seconds at which another process leads.
		earliest, latest float64
		isRestarted      bool
	}{
		{"killed", world.Fault{Kind: world.OperatorDown, At: 62 * time.Second, Lasts: 10 * time.Minute}, 75, 80, false},
		{"cut off", world.Fault{Kind: world.LeaderCut, At: 62 * time.Second, Lasts: 10 * time.Minute}, 75, 80, true},
		{"cut off for a moment", world.Fault{Kind: world.LeaderCut, At: 62 * time.Second, Lasts: 5 * time.Second}, 0, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := world.Spec{Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 2, 8), nodes("cluster2", 2, 8)}, Jobs: burst(16, 2), Faults: []world.Fault{tc.fault},
				Settings: world.Settings{Length: 2 * time.Hour, Standbys: 1}}
			w := Run(t, spec, Options{Verbose: printLog()})
			for _, p := range w.Problems {
				t.Error(p)
			}
			took := regexp.MustCompile(`([0-9.]+)s operator [23] became leader`).FindStringSubmatch(w.Log())
			switch {
			case tc.latest == 0:
				if took != nil {
					t.Errorf("the standby leads after %s s", took[1])
				}
			case took == nil:
				t.Error("the standby never leads")
			default:
				if at, err := strconv.ParseFloat(took[1], 64); err != nil || at < tc.earliest || at > tc.latest {
					t.Errorf("the standby leads after %s s, want %g to %g", took[1], tc.earliest, tc.latest)
				}
			}
			if stopped := regexp.MustCompile(`operator 1 stopped leading`).MatchString(w.Log()); stopped != tc.isRestarted {
				t.Errorf("the first process has stopped by itself: %v, want %v", stopped, tc.isRestarted)
			}
			if t.Failed() {
				t.Log(w.Log())
			}
		})
	}
}

// TestConnectionIsCut shows that neither requests nor events pass while a process is cut off.
func TestConnectionIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connection{}
		o := c.options(hub.ViewOptions{
			Delay:     func(schema.GroupVersionKind, types.NamespacedName, string) time.Duration { return time.Second },
			Intercept: func(hub.Request) hub.Fault { return hub.Fault{Latency: time.Second} },
		})
		test := func(want hub.Fault, delay time.Duration) {
			t.Helper()
			if got := o.Intercept(hub.Request{Verb: "get"}); got != want {
				t.Errorf("a request has %+v, want %+v", got, want)
			}
			if got := o.Delay(schema.GroupVersionKind{}, types.NamespacedName{}, ""); got != delay {
				t.Errorf("an event takes %s, want %s", got, delay)
			}
		}
		test(hub.Fault{Latency: time.Second}, time.Second)
		c.cut(10 * time.Second)
		test(hub.Fault{Before: errCutOff}, 11*time.Second)
		time.Sleep(10 * time.Second)
		test(hub.Fault{Latency: time.Second}, time.Second)
	})
}

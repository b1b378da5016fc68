package profile

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// TestEnergyOfARun: a job is admitted and holds its devices only later, when its images are
// there. Its energy is that of the time in which it held devices.
func TestEnergyOfARun(t *testing.T) {
	const power = `owner_model:plimsoll_power_watts:sum{cluster="c1",namespace="ml",owner_kind="Job",owner_name="train",model="H100"}`
	values := strings.NewReplacer("$cluster_label", "cluster", "$cluster", "c1", "$namespace", "ml", "$owner_kind", "Job", "$owner_name", "train")
	for _, tc := range []struct {
		name, samples string // every 15 s
		duration      time.Duration
		joules        float64
	}{
		{"with devices all the time", "500x40", 10 * time.Minute, 300e3},
		{"with devices in the second half", "_x20 500x20", 10 * time.Minute, 150e3},
		{"in two parts", "500x9 stale _x9 1000x20 stale", 10 * time.Minute, 75e3 + 300e3},
		{"for a day", "500x2880 stale", 24 * time.Hour, 500 * 12 * 3600},
		{"for some seconds", "500", 20 * time.Second, 10e3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			storage := promqltest.LoadedStorage(t, "load 15s\n  "+power+" "+tc.samples)
			var expr string
			for _, q := range Queries(tc.duration) {
				if q.Quantity == v1alpha1.QuantityEnergy {
					expr = values.Replace(q.Expr)
				}
			}
			engine := promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery)
			query, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(0, 0).Add(tc.duration))
			if err != nil {
				t.Fatal(err)
			}
			defer query.Close()
			vector, err := query.Exec(t.Context()).Vector()
			if err != nil || len(vector) != 1 || math.Abs(vector[0].F-tc.joules) > 0.06*tc.joules {
				t.Errorf("%s is %v, want %g J; %v", expr, vector, tc.joules, err)
			}
		})
	}
}

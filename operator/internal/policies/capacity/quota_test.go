package capacity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// defaults are the defaults of the API.
var defaults = Rules{KeepLast: 600 * time.Second, LowerAfter: 300 * time.Second, RaiseAfter: 2}

// measured returns the reading of clusters a, b, ... with the given devices. A negative
// number is unknown.
func measured(devices ...float64) Reading {
	r := Reading{}
	for i, n := range devices {
		c := ClusterReading{Name: string(rune('a' + i)), Devices: n}
		if n < 0 {
			c.Devices, c.Reason = 0, "NoSample"
		}
		r.Clusters = append(r.Clusters, c)
	}
	return r
}

// withUnhealthy adds the number of broken devices, all of them on cluster a.
func withUnhealthy(n int64, r Reading) Reading {
	for i := range r.Clusters {
		r.Clusters[i].Unhealthy = new(int64)
	}
	r.Clusters[0].Unhealthy = &n
	return r
}

var failed = Reading{Failed: true}

// TestNext runs rounds a minute apart and compares the quota after each.
func TestNext(t *testing.T) {
	for _, tc := range []struct {
		name   string
		spec   v1alpha1.MeasuredQuota
		rules  func(*Rules)
		use    Use
		rounds []Reading
		want   []int64 // -1: no quota
	}{
		{
			name: "first round", rounds: []Reading{measured(8, 16)}, want: []int64{24},
		},
		{
			name: "a raise needs two rounds", rounds: []Reading{measured(8), measured(16), measured(16)}, want: []int64{8, 8, 16},
		},
		{
			name: "the smaller of two rounds applies", rounds: []Reading{measured(8), measured(32), measured(16), measured(32), measured(32)},
			want: []int64{8, 8, 16, 16, 32},
		},
		{
			name: "the smaller of two rounds applies, also if it was the first", rounds: []Reading{measured(8), measured(16), measured(32)}, want: []int64{8, 8, 16},
		},
		{
			name: "a raise can need three rounds", rules: func(r *Rules) { r.RaiseAfter = 3 },
			rounds: []Reading{measured(8), measured(16), measured(16), measured(16)}, want: []int64{8, 8, 8, 16},
		},
		{
			name: "a raise of one round is noise", rounds: []Reading{measured(8), measured(16), measured(8), measured(16), measured(8)},
			want: []int64{8, 8, 8, 8, 8},
		},
		{
			name: "a source that fails interrupts a raise", rounds: []Reading{measured(8), measured(16), failed, measured(16), measured(16)},
			want: []int64{8, 8, 8, 8, 16},
		},
		{
			name: "a decrease takes five minutes", rounds: []Reading{measured(16), measured(8), measured(8), measured(8), measured(8), measured(8), measured(8)},
			want: []int64{16, 16, 16, 16, 16, 16, 8},
		},
		{
			name: "the time in which a source fails does not count for a decrease, nor ends it", rules: func(r *Rules) { r.SinceLast = time.Minute },
			rounds: []Reading{measured(16), measured(8), measured(8), failed, failed, measured(8), measured(8), measured(8), measured(8)},
			want:   []int64{16, 16, 16, 16, 16, 16, 16, 16, 8},
		},
		{
			name: "the larger of five minutes applies", rounds: []Reading{measured(16), measured(4), measured(12), measured(4), measured(4), measured(4), measured(4)},
			want: []int64{16, 16, 16, 16, 16, 16, 12},
		},
		{
			name: "a recovery ends a decrease", rounds: []Reading{measured(16), measured(8), measured(8), measured(16), measured(8), measured(8), measured(8), measured(8)},
			want: []int64{16, 16, 16, 16, 16, 16, 16, 16},
		},
		{
			name: "a source that fails keeps the quota", rounds: []Reading{measured(16), failed, failed, failed, failed, failed, failed, failed},
			want: []int64{16, 16, 16, 16, 16, 16, 16, 16},
		},
		{
			name: "a source that failed from the start has no quota", rounds: []Reading{failed, measured(8)}, want: []int64{-1, 8},
		},
		{
			name: "broken devices lower at once", rounds: []Reading{withUnhealthy(0, measured(16)), withUnhealthy(2, measured(14))}, want: []int64{16, 14},
		},
		{
			name: "one broken device takes its node", spec: v1alpha1.MeasuredQuota{RoundTo: 8},
			rounds: []Reading{withUnhealthy(0, measured(16)), withUnhealthy(1, measured(15))}, want: []int64{16, 8},
		},
		{
			name:   "broken devices explain only their part of a decrease",
			rounds: []Reading{withUnhealthy(0, measured(16)), withUnhealthy(2, measured(8))}, want: []int64{16, 14},
		},
		{
			name:   "one broken device lowers by one",
			rounds: []Reading{withUnhealthy(0, measured(16)), withUnhealthy(1, measured(8))}, want: []int64{16, 15},
		},
		{
			name: "one broken device takes no more than its node", spec: v1alpha1.MeasuredQuota{RoundTo: 8},
			rounds: []Reading{withUnhealthy(0, measured(32)), withUnhealthy(1, measured(8))}, want: []int64{32, 24},
		},
		{
			name:   "repaired devices beside a decrease raise nothing",
			rounds: []Reading{withUnhealthy(2, measured(16)), withUnhealthy(0, measured(12))}, want: []int64{16, 16},
		},
		{
			name:   "broken devices beside more new ones raise nothing at once",
			rounds: []Reading{withUnhealthy(0, measured(16)), withUnhealthy(2, measured(32))}, want: []int64{16, 16},
		},
		{
			name:   "devices that stay broken lower once",
			rounds: []Reading{withUnhealthy(2, measured(16)), withUnhealthy(2, measured(12))}, want: []int64{16, 16},
		},
		{
			name:   "broken devices beside new ones lower nothing",
			rounds: []Reading{withUnhealthy(0, measured(16)), withUnhealthy(2, measured(16))}, want: []int64{16, 16},
		},
		{
			name: "rounded per cluster", spec: v1alpha1.MeasuredQuota{RoundTo: 8}, rounds: []Reading{measured(7, 15, 24.9)}, want: []int64{32},
		},
		{
			name: "minimum and maximum", spec: v1alpha1.MeasuredQuota{Minimum: 4, Maximum: new(int64(10))},
			rounds: []Reading{measured(2), measured(64), measured(64)}, want: []int64{4, 4, 10},
		},
		{
			name: "deadband", spec: v1alpha1.MeasuredQuota{Deadband: 4}, rounds: []Reading{measured(16), measured(19), measured(19), measured(20), measured(20)},
			want: []int64{16, 16, 16, 16, 20},
		},
		{
			name: "a maximum below what is reserved", spec: v1alpha1.MeasuredQuota{Maximum: new(int64(10))}, use: Use{Reserved: 12, CohortQuota: new(int64(16))},
			rounds: []Reading{measured(16), measured(4), failed}, want: []int64{10, 10, 10},
		},
		{
			name: "a maximum below what is reserved, in the first round", spec: v1alpha1.MeasuredQuota{Maximum: new(int64(10))}, use: Use{Reserved: 12},
			rounds: []Reading{measured(16), measured(16)}, want: []int64{10, 10},
		},
		{
			name: "a maximum below what is reserved, while the source fails", spec: v1alpha1.MeasuredQuota{Maximum: new(int64(10))}, use: Use{Reserved: 12, CohortQuota: new(int64(16))},
			rounds: []Reading{failed}, want: []int64{10},
		},
		{
			name: "broken devices within the deadband", spec: v1alpha1.MeasuredQuota{Deadband: 4},
			rounds: []Reading{withUnhealthy(0, measured(16)), withUnhealthy(3, measured(13)), withUnhealthy(7, measured(9))}, want: []int64{16, 16, 12},
		},
		{
			name: "broken devices within the deadband explain a part of a decrease", spec: v1alpha1.MeasuredQuota{Deadband: 4},
			rounds: []Reading{withUnhealthy(0, measured(16)), withUnhealthy(3, measured(8)), withUnhealthy(7, measured(8))}, want: []int64{16, 16, 12},
		},
		{
			name: "not below what is reserved", rules: func(r *Rules) { r.LowerAfter = 0 }, use: Use{Reserved: 12},
			rounds: []Reading{measured(16), measured(8)}, want: []int64{16, 12},
		},
		{
			name: "below what is reserved if the user says so", rules: func(r *Rules) { r.LowerAfter, r.BelowReserved = 0, true }, use: Use{Reserved: 12},
			rounds: []Reading{measured(16), measured(8)}, want: []int64{16, 8},
		},
		{
			name: "to 0 if no devices are left and the user says so", rules: func(r *Rules) { r.LowerAfter, r.BelowReserved = 0, true }, use: Use{Reserved: 12},
			rounds: []Reading{measured(16), measured(0)}, want: []int64{16, 0},
		},
		{
			name: "what is reserved raises nothing", rules: func(r *Rules) { r.LowerAfter = 0 }, use: Use{Reserved: 20, CohortQuota: new(int64(16))},
			rounds: []Reading{measured(8)}, want: []int64{16},
		},
		{
			name: "continues from the Cohort", use: Use{CohortQuota: new(int64(24)), QueueQuota: 8}, rounds: []Reading{measured(16)}, want: []int64{32},
		},
		{
			name: "continues from the Cohort once", use: Use{CohortQuota: new(int64(24))}, rounds: repeat(measured(16), 7),
			want: []int64{24, 24, 24, 24, 24, 16, 16},
		},
		{
			name: "a silent cluster counts for ten minutes", rules: func(r *Rules) { r.LowerAfter = 0 },
			rounds: append([]Reading{measured(8, 8)}, repeat(measured(8, -1), 11)...), want: []int64{16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 8},
		},
		{
			name: "a cluster that never reported counts 0", rules: func(r *Rules) { r.LowerAfter = 0 },
			rounds: []Reading{measured(8, -1), measured(8, -1)}, want: []int64{8, 8},
		},
		{
			name: "a cluster that left", rules: func(r *Rules) { r.LowerAfter = 0 }, rounds: []Reading{measured(8, 8), measured(8)}, want: []int64{16, 8},
		},
		{
			name: "numbers that no fleet has", rounds: []Reading{measured(1e300, 1e300)}, want: []int64{2 * (1<<31 - 1)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rules := defaults
			if tc.rules != nil {
				tc.rules(&rules)
			}
			state, got := v1alpha1.QuotaStatus{}, []int64{}
			for i, reading := range tc.rounds {
				state = Next(&tc.spec, rules, state, reading, tc.use, start.Add(time.Duration(i)*time.Minute))
				if state.Quota == nil {
					got = append(got, -1)
				} else {
					got = append(got, *state.Quota)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("quota after each round (-want +got):\n%s", diff)
			}
		})
	}
}

func repeat(r Reading, n int) []Reading {
	var all []Reading
	for range n {
		all = append(all, r)
	}
	return all
}

func TestNextReportsClusters(t *testing.T) {
	state := Next(&v1alpha1.MeasuredQuota{}, defaults, v1alpha1.QuotaStatus{}, measured(8, 4, -1), Use{}, start)
	for minute := range 11 {
		state = Next(&v1alpha1.MeasuredQuota{}, defaults, state, measured(8, -1, -1), Use{}, start.Add(time.Duration(minute+1)*time.Minute))
		want := []v1alpha1.ClusterCapacity{
			{Name: "a", Devices: 8, State: v1alpha1.CapacityFresh},
			{Name: "b", Devices: 4, State: v1alpha1.CapacityKept, Reason: "NoSample"},
			{Name: "c", State: v1alpha1.CapacityMissing, Reason: "NoSample"},
		}
		if minute == 10 {
			want[1].Devices, want[1].State = 0, v1alpha1.CapacityMissing
		}
		if diff := cmp.Diff(want, state.Clusters, cmpopts.IgnoreFields(v1alpha1.ClusterCapacity{}, "Since")); diff != "" {
			t.Errorf("minute %d (-want +got):\n%s", minute+1, diff)
		}
		if since := state.Clusters[1].Since; !since.Time.Equal(start.Add(time.Minute)) {
			t.Errorf("minute %d: b is unknown since %v", minute+1, since)
		}
	}
	state = Next(&v1alpha1.MeasuredQuota{}, defaults, state, measured(8, 4, 2), Use{}, start.Add(time.Hour))
	for _, c := range state.Clusters {
		if c.State != v1alpha1.CapacityFresh || c.Since != nil || c.Reason != "" {
			t.Errorf("after the recovery: %+v", c)
		}
	}
}

// The status names the quota, what is reserved of it, and the change that is due next.
func TestNextReportsTheQuota(t *testing.T) {
	spec := &v1alpha1.MeasuredQuota{Flavor: "h100", Resource: "nvidia.com/gpu"}
	state := v1alpha1.QuotaStatus{}
	for i, tc := range []struct {
		reading      Reading
		raise, lower *int64
	}{
		{measured(16), nil, nil},
		{measured(16), nil, nil},
		{measured(24), new(int64(24)), nil},
		{measured(12), nil, new(int64(12))},
		{measured(16), nil, nil},
	} {
		state = Next(spec, defaults, state, tc.reading, Use{Reserved: 5, QueueQuota: 3}, start.Add(time.Duration(i)*time.Minute))
		var raise, lower *int64
		if state.Raise != nil {
			raise = &state.Raise.To
		}
		if state.Lower != nil {
			lower = &state.Lower.To
		}
		if diff := cmp.Diff([]*int64{tc.raise, tc.lower}, []*int64{raise, lower}); diff != "" {
			t.Errorf("round %d: pending raise and decrease (-want +got):\n%s", i, diff)
		}
	}
	if state.Flavor != "h100" || state.Resource != "nvidia.com/gpu" || state.Reserved != 5 || state.QueueQuota != 3 {
		t.Errorf("%+v, want h100 nvidia.com/gpu with 5 reserved and 3 of the queues", state)
	}
}

// A maximum that an administrator lowers during an outage applies at once.
func TestLimitsApplyWithoutAResponse(t *testing.T) {
	state := Next(&v1alpha1.MeasuredQuota{}, defaults, v1alpha1.QuotaStatus{}, measured(16), Use{}, start)
	state = Next(&v1alpha1.MeasuredQuota{Maximum: new(int64(4))}, defaults, state, failed, Use{}, start.Add(time.Minute))
	if *state.Quota != 4 {
		t.Errorf("quota %d", *state.Quota)
	}
}

func TestRestartClocks(t *testing.T) {
	spec := &v1alpha1.MeasuredQuota{}
	state := Next(spec, defaults, v1alpha1.QuotaStatus{}, measured(8, 8), Use{}, start)
	state = Next(spec, defaults, state, measured(6, -1), Use{}, start.Add(time.Minute))
	later := start.Add(time.Hour)
	restarted := RestartClocks(state, later)
	if restarted.Clusters[0].Since != nil || !restarted.Clusters[1].Since.Time.Equal(later) || !state.Clusters[1].Since.Time.Equal(start.Add(time.Minute)) {
		t.Errorf("clusters %+v, before %+v: only the silent one counts from now on", restarted.Clusters, state.Clusters)
	}
	state = Next(spec, defaults, restarted, measured(6, -1), Use{}, later)
	if *state.Quota != 16 || state.Clusters[1].State != v1alpha1.CapacityKept || state.Clusters[1].Devices != 8 {
		t.Errorf("after an hour without rounds: quota %d, %+v", *state.Quota, state.Clusters[1])
	}
}

func TestResourceGroups(t *testing.T) {
	quota := func(flavor, resource string, total, queues int64) v1alpha1.QuotaStatus {
		return v1alpha1.QuotaStatus{Flavor: flavor, Resource: resource, Quota: &total, QueueQuota: queues}
	}
	for _, tc := range []struct {
		name   string
		quotas []v1alpha1.QuotaStatus
		want   []string
	}{
		{"not measured yet", []v1alpha1.QuotaStatus{{Flavor: "h100", Resource: "nvidia.com/gpu", QueueQuota: 6}}, []string{"nvidia.com/gpu: h100=0"}},
		{"one", []v1alpha1.QuotaStatus{quota("h100", "nvidia.com/gpu", 16, 0)}, []string{"nvidia.com/gpu: h100=16"}},
		{"less the queues' own", []v1alpha1.QuotaStatus{quota("h100", "nvidia.com/gpu", 16, 6)}, []string{"nvidia.com/gpu: h100=10"}},
		{"queues have more", []v1alpha1.QuotaStatus{quota("h100", "nvidia.com/gpu", 16, 20)}, []string{"nvidia.com/gpu: h100=0"}},
		{
			"two flavors of one resource", []v1alpha1.QuotaStatus{quota("h100", "nvidia.com/gpu", 16, 0), quota("a100", "nvidia.com/gpu", 8, 0)},
			[]string{"nvidia.com/gpu: h100=16 a100=8"},
		},
		{
			"unrelated", []v1alpha1.QuotaStatus{quota("h100", "nvidia.com/gpu", 16, 0), quota("v5e", "google.com/tpu", 8, 0)},
			[]string{"nvidia.com/gpu: h100=16", "google.com/tpu: v5e=8"},
		},
		{
			"a chain of shared names", []v1alpha1.QuotaStatus{
				quota("h100", "nvidia.com/gpu", 16, 0), quota("v5e", "google.com/tpu", 8, 0), quota("h100", "nic", 4, 0), quota("a100", "nic", 2, 0),
			},
			[]string{"nvidia.com/gpu,nic: h100=16,4 a100=0,2", "google.com/tpu: v5e=8"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, group := range ResourceGroups(tc.quotas) {
				text := ""
				for i, name := range group.CoveredResources {
					if i > 0 {
						text += ","
					}
					text += string(name)
				}
				text += ":"
				for _, flavor := range group.Flavors {
					text += " " + string(flavor.Name) + "="
					for i, q := range flavor.Resources {
						if i > 0 {
							text += ","
						}
						text += q.NominalQuota.String()
						if q.Name != group.CoveredResources[i] {
							t.Errorf("resource %s of %s at the place of %s", q.Name, flavor.Name, group.CoveredResources[i])
						}
					}
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

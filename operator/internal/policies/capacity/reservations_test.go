package capacity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// A decrease that is due follows what is reserved, round by round. The queue of a busy fleet may have
// reserved everything in each round in which a new clock ends.
func TestDecreaseFollowsReservations(t *testing.T) {
	for _, tc := range []struct {
		name     string
		readings []Reading
		reserved []int64
		want     []int64
	}{
		{
			name:     "measured",
			readings: append([]Reading{measured(16)}, repeat(measured(8), 11)...),
			reserved: []int64{16, 16, 16, 16, 16, 16, 16, 16, 12, 14, 4, 4},
			want:     []int64{16, 16, 16, 16, 16, 16, 16, 16, 12, 12, 8, 8},
		},
		{
			name:     "broken devices",
			readings: append([]Reading{withUnhealthy(0, measured(16))}, repeat(withUnhealthy(4, measured(12)), 3)...),
			reserved: []int64{16, 16, 14, 4},
			want:     []int64{16, 16, 14, 12},
		},
		{
			name:     "a recovery ends it",
			readings: append(append([]Reading{measured(16)}, repeat(measured(8), 6)...), measured(16), measured(8), measured(8)),
			reserved: []int64{16, 16, 16, 16, 16, 16, 16, 16, 4, 4},
			want:     []int64{16, 16, 16, 16, 16, 16, 16, 16, 16, 16},
		},
		{
			name:     "a failed response does not end it",
			readings: append(append([]Reading{measured(16)}, repeat(measured(8), 7)...), failed, failed, measured(8)),
			reserved: []int64{16, 16, 16, 16, 16, 16, 16, 16, 4, 4, 4},
			want:     []int64{16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 8},
		},
		{
			name:     "a recovery after a failed response ends it",
			readings: append(append([]Reading{measured(16)}, repeat(measured(8), 7)...), failed, measured(16), measured(8)),
			reserved: []int64{16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 4},
			want:     []int64{16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16},
		},
		{
			name:     "to the largest number",
			readings: append(append([]Reading{measured(16)}, repeat(measured(8), 6)...), measured(12), measured(8), measured(8)),
			reserved: []int64{16, 16, 16, 16, 16, 16, 16, 16, 4, 4},
			want:     []int64{16, 16, 16, 16, 16, 16, 16, 16, 12, 12},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state, got := v1alpha1.QuotaStatus{}, []int64{}
			rules := defaults
			rules.SinceLast = time.Minute
			for i, reading := range tc.readings {
				state = Next(&v1alpha1.MeasuredQuota{}, rules, state, reading, Use{Reserved: tc.reserved[i]}, start.Add(time.Duration(i)*time.Minute))
				got = append(got, *state.Quota)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("quota after each round (-want +got):\n%s", diff)
			}
		})
	}
}

// Early rounds count from the last round that was not early. If several fail, the clock of a decrease
// begins again at the latest of them, and not later.
func TestClockOfADecreaseIsNeverAhead(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	pending := &v1alpha1.PendingLower{To: 8, Since: metav1.NewTime(now)}
	for range 5 {
		now = now.Add(30 * time.Second)
		pending = pauseDecrease(pending, Rules{LowerAfter: 5 * time.Minute, SinceLast: 2 * time.Minute}, now)
		if pending.Since.After(now) {
			t.Fatalf("the decrease is pending since %s, %s ahead", pending.Since, pending.Since.Sub(now))
		}
	}
}

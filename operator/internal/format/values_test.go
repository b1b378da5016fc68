package format

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for _, tc := range []struct {
		duration time.Duration
		want     string
	}{
		{1400 * time.Millisecond, "1s"},
		{45 * time.Second, "45s"},
		{5 * time.Minute, "5m"},
		{200 * time.Second, "3m20s"},
		{70 * time.Minute, "70m"},
		{5 * time.Hour, "5h"},
		{100 * time.Hour, "4d"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			if got := Duration(tc.duration); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.duration, got, tc.want)
			}
		})
	}
}

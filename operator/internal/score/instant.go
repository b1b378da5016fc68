package score

import "time"

// Instant is a time in nanoseconds since the Unix epoch, 0 when there is none. It
// keeps cells small and free of pointers: a fleet has many.
type Instant int64

// At makes an Instant of a time; the zero time is none.
func At(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixNano())
}

// Time is the instant as a time in UTC, the zero time when there is none.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// IsZero says that there is none.
func (i Instant) IsZero() bool { return i == 0 }

func (i Instant) add(d time.Duration) Instant { return i + Instant(d) }

func (i Instant) sub(j Instant) time.Duration { return time.Duration(i - j) }

package score

import "time"

// Instant is a time in nanoseconds since the Unix epoch. Zero means "no time". The type
// is small and contains no pointers, because a fleet has many cells with several times
// each.
type Instant int64

// At converts a time to an Instant. The zero time becomes zero.
func At(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixNano())
}

// Time converts the Instant to a time in UTC. Zero becomes the zero time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// IsZero reports whether the Instant is zero.
func (i Instant) IsZero() bool { return i == 0 }

func (i Instant) add(d time.Duration) Instant { return i + Instant(d) }

func (i Instant) sub(j Instant) time.Duration { return time.Duration(i - j) }

package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// unknownValue stands in tables for a value that is not known.
const unknownValue = "?"

// formatAge returns the time between t and now in the format of formatDuration.
func formatAge(now, t time.Time) string { return formatDuration(now.Sub(t)) }

// formatDuration formats d as kubectl does: 45s, 3m20s, 2h, 5d.
func formatDuration(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < 10*time.Minute:
		return strings.Replace(d.String(), "m0s", "m", 1)
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// formatTime returns t in UTC, to the second.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// formatSampleAge returns the age of a sample with the given time, which may be nil.
func formatSampleAge(t *time.Time, now time.Time) string {
	if t == nil {
		return unknownValue
	}
	return formatAge(now, *t) + " old"
}

// formatAgeSeconds returns an age in seconds. Negative ages are unknown.
func formatAgeSeconds(seconds float64) string {
	if seconds < 0 {
		return unknownValue
	}
	return formatDuration(time.Duration(seconds*float64(time.Second))) + " old"
}

// formatScore returns a published score, or none if there is no value.
func formatScore(v *int32, none string) string {
	if v == nil {
		return none
	}
	return strconv.Itoa(int(*v))
}

// formatFloat returns v with three decimals at most.
func formatFloat(v *float64) string {
	if v == nil {
		return unknownValue
	}
	return fmt.Sprintf("%g", math.Round(*v*1000)/1000)
}

// formatRaw returns a raw value with six significant digits.
func formatRaw(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func formatNumber(n gate.Number) string {
	if !n.Known {
		return unknownValue
	}
	return fmt.Sprintf("%g", n.Value)
}

// formatDecimal returns v with as many decimals as it has.
func formatDecimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// formatPercent returns a share of 0..1 as a percentage with one decimal at most.
func formatPercent(share float64) string { return formatDecimal(roundTenth(100*share)) + "%" }

// roundTenth rounds v to one decimal.
func roundTenth(v float64) float64 { return math.Round(v*10) / 10 }

// pluralize returns n and the noun, with an s unless n is 1.
func pluralize(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

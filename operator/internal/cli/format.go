package cli

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/format"
)

// formatTime returns t in UTC, to the second.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// formatSampleAge returns the age of a sample with the given time, which may be nil.
func formatSampleAge(t *time.Time, now time.Time) string {
	if t == nil {
		return format.Unknown
	}
	return format.Age(now, *t) + " old"
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
		return format.Unknown
	}
	return fmt.Sprintf("%g", math.Round(*v*1000)/1000)
}

// formatRaw returns a raw value with six significant digits.
func formatRaw(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// formatDecimal returns v with as many decimals as it has.
func formatDecimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// formatPercent returns a share of 0..1 as a percentage with one decimal at most.
func formatPercent(share float64) string { return formatDecimal(roundTenth(100*share)) + "%" }

// roundTenth rounds v to one decimal.
func roundTenth(v float64) float64 { return math.Round(v*10) / 10 }

// Package format formats values and tables as text for terminals, as kubectl does.
package format

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Unknown stands in tables for a value that is not known.
const Unknown = "?"

// Age returns the time between t and now in the format of Duration.
func Age(now, t time.Time) string { return Duration(now.Sub(t)) }

// Duration formats d as kubectl does: 45s, 3m20s, 2h, 5d.
func Duration(d time.Duration) string {
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

// Seconds formats a number of seconds as Duration does.
func Seconds(n int64) string { return Duration(time.Duration(n) * time.Second) }

// Memory formats bytes in mebibytes, as a quantity of Kubernetes.
func Memory(n int64) string {
	const mebibyte = 1 << 20
	return resource.NewQuantity((n+mebibyte/2)/mebibyte*mebibyte, resource.BinarySI).String()
}

// Plural returns n and the noun, with an s unless n is 1.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Time returns t in UTC, to the second.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// SampleAge returns the age of a sample with the given time, which may be nil.
func SampleAge(t *time.Time, now time.Time) string {
	if t == nil {
		return Unknown
	}
	return Age(now, *t) + " old"
}

// Score returns a published score, or none if there is no value.
func Score(v *int32, none string) string {
	if v == nil {
		return none
	}
	return strconv.Itoa(int(*v))
}

// Float returns v with three decimals at most.
func Float(v *float64) string {
	if v == nil {
		return Unknown
	}
	return fmt.Sprintf("%g", math.Round(*v*1000)/1000)
}

// Raw returns a raw value with six significant digits.
func Raw(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// Decimal returns v with as many decimals as it has.
func Decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Percent returns a share of 0..1 as a percentage with one decimal at most.
func Percent(share float64) string { return Decimal(RoundTenth(100*share)) + "%" }

// RoundTenth rounds v to one decimal.
func RoundTenth(v float64) float64 { return math.Round(v*10) / 10 }

// Abbreviate joins names, of many only the first ones.
func Abbreviate(names []string) string {
	const limit = 3
	if len(names) > limit {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
	}
	return strings.Join(names, ", ")
}

// Package format formats values and tables as text for terminals, as kubectl does.
package format

import (
	"fmt"
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

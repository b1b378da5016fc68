package sim

import (
	"regexp"
	"strings"
)

// product is what a model can do, after its data sheet.
type product struct {
	idle, least, limit float64 // W
	slow, fast, memory float64 // MHz
	pcie, nvlink       float64 // bytes each second at full utilization
	monitored          bool    // what of it is active can be told: Hopper and newer
}

var products = map[string]product{
	"L4":   {idle: 16, least: 40, limit: 72, slow: 210, fast: 2040, memory: 6251, pcie: 4e9},
	"A100": {idle: 55, least: 100, limit: 400, slow: 210, fast: 1410, memory: 1593, pcie: 8e9, nvlink: 120e9},
	"H100": {idle: 70, least: 200, limit: 700, slow: 345, fast: 1980, memory: 2619, pcie: 12e9, nvlink: 180e9},
}

var hopperOrNewer = regexp.MustCompile(`\bG?[HB]\d{3}`)

// productOf a model's name; one that is not known is as an H100.
func productOf(name string) product {
	p := products["H100"]
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '-' }) {
		if known, ok := products[word]; ok {
			p = known
		}
	}
	p.monitored = hopperOrNewer.MatchString(name)
	return p
}

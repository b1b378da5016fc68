package tpu

import (
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestGivenServicesReportAllocatedChips(t *testing.T) {
	runtime := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 70, 80)})
	s := newSource(fakeSysfs(t, "0x0063", "0x0063", "0x0063", "0x0063"), runtime.address)
	s.options.IsAllocated = func(minor string) bool { return minor == "tpu1" || minor == "tpu3" }
	readings := readAll(t, s)
	if got := valuesOf(readings, device.DutyCycle); got != "- 70 - 80" {
		t.Errorf("duty cycle is %s, want - 70 - 80", got)
	}
	if got := valuesOf(readings, device.Workload); got != "0 1 0 1" {
		t.Errorf("workload is %s, want 0 1 0 1", got)
	}
}

func TestServicePerChip(t *testing.T) {
	a := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 10)})
	b := startRuntime(t, map[string]string{dutyCycle: gauges(0, "as_double", 20)})
	readings := readAll(t, newSource(fakeSysfs(t, "0x0063", "0x0063"), a.address, b.address))
	if got := valuesOf(readings, device.DutyCycle); got != "10 20" {
		t.Errorf("duty cycle is %s, want 10 20", got)
	}
	if !a.ownOnly || !b.ownOnly {
		t.Error("the request to a process includes the chips of other processes")
	}
	if readAll(t, newSource(fakeSysfs(t, "0x0063"), a.address)); a.ownOnly {
		t.Error("the request to the only process excludes the chips of other processes")
	}
}

func TestParsePorts(t *testing.T) {
	for _, tc := range []struct {
		name, list string
		n          int
		want       string
	}{
		{"default", "", 2, "8431 8432"},
		{"default is limited", "", 12, "8431 8432 8433 8434 8435 8436 8437 8438"},
		{"spaces", " 9001, 9002", 2, "9001 9002"},
		{"invalid ports are ignored", "9001,0,-1,65536,x,,+2,9 9,9002", 2, "9001 9002"},
		{"only invalid ports", "evil.example:80", 2, "8431 8432"},
		{"list is limited", "1,2,3,4,5,6,7,8,9,10", 2, "1 2 3 4 5 6 7 8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := strings.Join(parsePorts(tc.list, tc.n), " "); got != tc.want {
				t.Errorf("ports of %q are %s, want %s", tc.list, got, tc.want)
			}
		})
	}
}

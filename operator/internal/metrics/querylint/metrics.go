package querylint

import (
	"slices"
	"strings"
)

// kind is the type of a metric, as far as its name says.
type kind uint8

const (
	unknown kind = iota
	counter
	gauge
	recorded // by a recording rule
)

// kindOf returns the type of a metric by the naming conventions of Prometheus, of
// recording rules and of DCGM.
func kindOf(metric string) kind {
	switch {
	case level(metric) != "":
		return recorded
	case strings.HasPrefix(metric, "DCGM_FI_"):
		return dcgmKind(metric)
	}
	for _, suffix := range []string{"_total", "_count", "_sum", "_bucket"} {
		if strings.HasSuffix(metric, suffix) {
			return counter
		}
	}
	for _, prefix := range []string{"plimsoll_", "kube_", "kueue_", "up"} {
		if strings.HasPrefix(metric, prefix) && (prefix != "up" || metric == "up") {
			return gauge
		}
	}
	return unknown
}

// dcgmCounters are parts of the names of DCGM fields that only grow.
var dcgmCounters = []string{
	"_TOTAL_ENERGY_CONSUMPTION", "_REPLAY_COUNTER", "_VIOLATION", "_ERROR_COUNT", "_VOL_TOTAL", "_AGG_TOTAL", "_BANDWIDTH_TOTAL",
	"_COUNT_TOTAL", "_REMAPPED_ROWS",
}

func dcgmKind(metric string) kind {
	for _, part := range dcgmCounters {
		if strings.Contains(metric, part) {
			return counter
		}
	}
	return gauge
}

// servers are programs whose own metrics have their name and a colon, as recorded metrics have.
var servers = []string{"vllm", "sglang"}

// level returns the part of a recorded metric's name that lists the labels of its series,
// such as "cluster_model" of cluster_model:plimsoll_devices:sum, or "".
func level(metric string) string {
	before, _, ok := strings.Cut(metric, ":")
	if !ok || slices.Contains(servers, before) {
		return ""
	}
	return before
}

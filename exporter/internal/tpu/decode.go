package tpu

import (
	"fmt"
	"hash/maphash"
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"

	"plimsoll.dev/plimsoll/exporter/internal/tpu/tpupb"
)

// sample is one value of a runtime metric.
type sample struct {
	device int64 // device number; -1 without a device
	value  float64
}

// samplesOf returns the finite numbers of a metric.
func samplesOf(m *tpupb.TPUMetric) []sample {
	var samples []sample
	for _, metric := range m.GetMetrics() {
		value, ok := numberOf(metric)
		if !ok || math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		s := sample{-1, value}
		if metric.Attribute != nil {
			s.device = deviceOf(metric.Attribute.GetValue())
		}
		samples = append(samples, s)
	}
	return samples
}

// numberOf returns the number of a gauge or a counter. ok is false for a string.
func numberOf(m *tpupb.Metric) (v float64, ok bool) {
	switch g := m.GetGauge().GetValue().(type) {
	case *tpupb.Gauge_AsDouble:
		return g.AsDouble, true
	case *tpupb.Gauge_AsInt:
		return float64(g.AsInt), true
	case *tpupb.Gauge_AsBool:
		return boolValue(g.AsBool), true
	}
	switch c := m.GetCounter().GetValue().(type) {
	case *tpupb.Counter_AsDouble:
		return c.AsDouble, true
	case *tpupb.Counter_AsInt:
		return float64(c.AsInt), true
	}
	return 0, false
}

// deviceOf returns the device number in the value of an attribute: its integer, the integer
// in its string, or that of the element device_ordinal of its list. It returns 0 without a
// value, because proto3 omits zeros, and -1 for any other value.
func deviceOf(value *tpupb.AttrValue) int64 {
	switch v := value.GetAttr().(type) {
	case nil:
		return 0
	case *tpupb.AttrValue_IntAttr:
		return v.IntAttr
	case *tpupb.AttrValue_StringAttr:
		if n, err := strconv.ParseInt(v.StringAttr, 10, 64); err == nil {
			return n
		}
	case *tpupb.AttrValue_KvlistAttr:
		for _, a := range v.KvlistAttr.GetAttributes() {
			if a.GetKey() == "device_ordinal" && a.GetValue() != nil {
				return deviceOf(a.GetValue())
			}
		}
	}
	return -1
}

// core is the state of a TensorCore or SparseCore.
type core struct {
	chip int64
	// mark is a hash of the program counters and runs of the core's sequencers.
	mark uint64
}

var markSeed = maphash.MakeSeed()

// coresOf returns the state of every core.
func coresOf(status *tpupb.GetTpuRuntimeStatusResponse) ([]core, error) {
	var cores []core
	for _, state := range status.GetCoreStates() {
		if state.Value == nil {
			continue
		}
		var sequencers []byte
		for _, s := range state.Value.GetSequencerInfo() {
			var err error
			if sequencers, err = (proto.MarshalOptions{Deterministic: true}).MarshalAppend(sequencers, s); err != nil {
				return nil, fmt.Errorf("encode the state of a sequencer: %w", err)
			}
			sequencers = append(sequencers, 0xff)
		}
		cores = append(cores, core{int64(state.Value.GetCoreId().GetChipId()), maphash.Bytes(markSeed, sequencers)})
	}
	return cores, nil
}

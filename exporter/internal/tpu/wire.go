package tpu

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// sample is one value of a runtime metric.
type sample struct {
	device int64 // device number; -1 without a device
	value  float64
}

// wireField is a field of a protobuf message, with a number in bits or a value in bytes.
type wireField struct {
	number protowire.Number
	kind   protowire.Type
	bits   uint64
	bytes  []byte
}

func (f wireField) double() float64 { return math.Float64frombits(f.bits) }

var errWire = errors.New("the response is not a protobuf message of the runtime metric service")

// forEachField calls handle for each field of a message, in order. Fields of other wire types
// than varint, fixed64 and bytes have neither bits nor bytes set.
func forEachField(message []byte, handle func(f wireField) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errWire
		}
		message = message[n:]
		f := wireField{number: number, kind: kind}
		switch kind {
		case protowire.VarintType:
			f.bits, n = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			f.bits, n = protowire.ConsumeFixed64(message)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return errWire
		}
		message = message[n:]
		if err := handle(f); err != nil {
			return err
		}
	}
	return nil
}

// encodeMetricRequest returns a MetricRequest. With ownProcessOnly the service leaves out the
// chips of other processes on the node.
func encodeMetricRequest(metric string, ownProcessOnly bool) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), metric)
	if ownProcessOnly { // skip_node_aggregation
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 1)
	}
	return b
}

// decodeSupportedMetrics returns the metric names in a ListSupportedMetricsResponse.
func decodeSupportedMetrics(message []byte) (map[string]bool, error) {
	names := map[string]bool{}
	return names, forEachField(message, func(f wireField) error {
		if f.number != 1 {
			return nil
		}
		return forEachField(f.bytes, func(f wireField) error {
			if f.number == 1 {
				names[string(f.bytes)] = true
			}
			return nil
		})
	})
}

// decodeMetric returns the name and the samples of the metric in a MetricResponse.
func decodeMetric(message []byte) (name string, samples []sample, err error) {
	err = forEachField(message, func(f wireField) error {
		if f.number != 1 {
			return nil
		}
		return forEachField(f.bytes, func(f wireField) error {
			switch f.number {
			case 1:
				name = string(f.bytes)
			case 3:
				s, ok, err := decodeSample(f.bytes)
				if ok {
					samples = append(samples, s)
				}
				return err
			}
			return nil
		})
	})
	return name, samples, err
}

// decodeSample decodes a Metric. It returns false if the metric has no finite number.
func decodeSample(message []byte) (s sample, ok bool, err error) {
	s.device = -1
	err = forEachField(message, func(f wireField) error {
		var err error
		switch f.number {
		case 1:
			s.device, err = decodeDevice(f.bytes)
		case 3, 4: // a gauge or a counter
			s.value, ok, err = decodeNumber(f.bytes, f.number == 3)
		}
		return err
	})
	return s, ok && !math.IsNaN(s.value) && !math.IsInf(s.value, 0), err
}

// decodeNumber decodes a Gauge {1 double, 2 int64, 3 string, 4 bool} or a Counter {1 double,
// 2 uint64}. It returns false without a number.
func decodeNumber(message []byte, isGauge bool) (v float64, ok bool, err error) {
	err = forEachField(message, func(f wireField) error {
		switch {
		case f.number == 1 && f.kind == protowire.Fixed64Type:
			v, ok = f.double(), true
		case f.kind != protowire.VarintType:
		case f.number == 2 && isGauge:
			v, ok = float64(int64(f.bits)), true
		case f.number == 2:
			v, ok = float64(f.bits), true
		case f.number == 4 && isGauge:
			v, ok = float64(f.bits), true
		}
		return nil
	})
	return v, ok, err
}

// decodeDevice returns the device number in an Attribute: its integer value, or the element
// device_ordinal of its list. It returns 0 without a value, because proto3 omits zeros, and -1
// for any other value.
func decodeDevice(attribute []byte) (int64, error) {
	device := int64(0)
	return device, forEachField(attribute, func(f wireField) error {
		if f.number != 2 {
			return nil
		}
		return forEachField(f.bytes, func(f wireField) error {
			switch f.number {
			case 3:
				device = int64(f.bits)
			case 6:
				var err error
				device, err = decodeOrdinal(f.bytes)
				return err
			default:
				device = -1
			}
			return nil
		})
	})
}

// decodeOrdinal returns the attribute device_ordinal of a KeyValueList, given as integer or
// string. It returns -1 without the attribute.
func decodeOrdinal(list []byte) (int64, error) {
	device := int64(-1)
	return device, forEachField(list, func(f wireField) error {
		if f.number != 1 {
			return nil
		}
		key, value := "", []byte(nil)
		err := forEachField(f.bytes, func(f wireField) error {
			switch f.number {
			case 1:
				key = string(f.bytes)
			case 2:
				value = f.bytes
			}
			return nil
		})
		if err != nil || key != "device_ordinal" {
			return err
		}
		return forEachField(value, func(f wireField) error {
			switch f.number {
			case 1:
				if n, err := strconv.ParseInt(string(f.bytes), 10, 64); err == nil {
					device = n
				}
			case 3:
				device = int64(f.bits)
			}
			return nil
		})
	})
}

// core is the state of a TensorCore or SparseCore.
type core struct {
	chip int64
	// mark is a hash of the program counters and runs of the core's sequencers.
	mark uint64
}

// decodeCores returns the core states of a GetTpuRuntimeStatusResponse.
func decodeCores(message []byte) ([]core, error) {
	var out []core
	return out, forEachField(message, func(f wireField) error {
		if f.number != 2 {
			return nil
		}
		return forEachField(f.bytes, func(entry wireField) error {
			if entry.number != 2 {
				return nil
			}
			c, err := decodeCore(entry.bytes)
			out = append(out, c)
			return err
		})
	})
}

var markSeed = maphash.MakeSeed()

// decodeCore decodes a CurrentCoreStateSummary.
func decodeCore(summary []byte) (c core, err error) {
	var sequencers []byte
	err = forEachField(summary, func(f wireField) error {
		switch f.number {
		case 1:
			return forEachField(f.bytes, func(f wireField) error {
				if f.number == 2 {
					c.chip = int64(f.bits)
				}
				return nil
			})
		case 2:
			sequencers = append(append(sequencers, f.bytes...), 0xff)
		}
		return nil
	})
	c.mark = maphash.Bytes(markSeed, sequencers)
	return c, err
}

// rawCodec is a gRPC codec for encoded messages.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (rawCodec) Unmarshal(message []byte, v any) error {
	target, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("decode an encoded message: target must be *[]byte, not %T", v)
	}
	*target = append([]byte(nil), message...)
	return nil
}

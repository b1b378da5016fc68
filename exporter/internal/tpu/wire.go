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
	device int64 // that it is of; -1 where it is of none in particular
	value  float64
}

// field of a message: a number in bits, or bytes.
type wireField struct {
	number protowire.Number
	kind   protowire.Type
	bits   uint64
	bytes  []byte
}

func (f wireField) double() float64 { return math.Float64frombits(f.bits) }

var errWire = errors.New("the answer is no protobuf message of the runtime metric service")

// eachField of a message, in its order; fields of kinds that are not used here are
// passed over.
func eachField(message []byte, use func(f wireField) error) error {
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
		if err := use(f); err != nil {
			return err
		}
	}
	return nil
}

// request is a MetricRequest.
func request(metric string, ofThisProcess bool) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), metric)
	if ofThisProcess { // skip_node_aggregation
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 1)
	}
	return b
}

// supported are the names of a ListSupportedMetricsResponse.
func supported(message []byte) (map[string]bool, error) {
	names := map[string]bool{}
	return names, eachField(message, func(f wireField) error {
		if f.number != 1 {
			return nil
		}
		return eachField(f.bytes, func(f wireField) error {
			if f.number == 1 {
				names[string(f.bytes)] = true
			}
			return nil
		})
	})
}

// samples of a MetricResponse, and the name that they have.
func samples(message []byte) (name string, out []sample, err error) {
	err = eachField(message, func(f wireField) error {
		if f.number != 1 {
			return nil
		}
		return eachField(f.bytes, func(f wireField) error {
			switch f.number {
			case 1:
				name = string(f.bytes)
			case 3:
				s, told, err := metric(f.bytes)
				if told {
					out = append(out, s)
				}
				return err
			}
			return nil
		})
	})
	return name, out, err
}

// metric is a Metric; told is false where it has no number.
func metric(message []byte) (s sample, told bool, err error) {
	s.device = -1
	err = eachField(message, func(f wireField) error {
		var err error
		switch f.number {
		case 1:
			s.device, err = deviceOf(f.bytes)
		case 3, 4: // a gauge or a counter
			s.value, told, err = number(f.bytes, f.number == 3)
		}
		return err
	})
	return s, told && !math.IsNaN(s.value) && !math.IsInf(s.value, 0), err
}

// number of a Gauge {1 double, 2 int64, 3 string, 4 bool} or a Counter {1 double, 2 uint64}.
func number(message []byte, gauge bool) (v float64, told bool, err error) {
	err = eachField(message, func(f wireField) error {
		switch {
		case f.number == 1 && f.kind == protowire.Fixed64Type:
			v, told = f.double(), true
		case f.kind != protowire.VarintType:
		case f.number == 2 && gauge:
			v, told = float64(int64(f.bits)), true
		case f.number == 2:
			v, told = float64(f.bits), true
		case f.number == 4 && gauge:
			v, told = float64(f.bits), true
		}
		return nil
	})
	return v, told, err
}

// deviceOf an Attribute: its value where that is an integer, or the device_ordinal
// of its list. An attribute without its value is device 0, as proto3 leaves zeros out.
func deviceOf(attribute []byte) (int64, error) {
	device := int64(0)
	return device, eachField(attribute, func(f wireField) error {
		if f.number != 2 {
			return nil
		}
		return eachField(f.bytes, func(f wireField) error {
			switch f.number {
			case 3:
				device = int64(f.bits)
			case 6:
				var err error
				device, err = ordinal(f.bytes)
				return err
			default:
				device = -1
			}
			return nil
		})
	})
}

// ordinal is the attribute device_ordinal of a KeyValueList, a number or a text of one; -1 without.
func ordinal(list []byte) (int64, error) {
	device := int64(-1)
	return device, eachField(list, func(f wireField) error {
		if f.number != 1 {
			return nil
		}
		key, value := "", []byte(nil)
		err := eachField(f.bytes, func(f wireField) error {
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
		return eachField(value, func(f wireField) error {
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

// core is what a TensorCore or SparseCore executes.
type core struct {
	chip   int64
	queued int
	mark   uint64 // of its sequencers' program counters and runs: moves when they do
}

// cores of a GetTpuRuntimeStatusResponse.
func cores(message []byte) ([]core, error) {
	var out []core
	return out, eachField(message, func(f wireField) error {
		if f.number != 2 {
			return nil
		}
		return eachField(f.bytes, func(entry wireField) error {
			if entry.number != 2 {
				return nil
			}
			c, err := coreOf(entry.bytes)
			out = append(out, c)
			return err
		})
	})
}

var seed = maphash.MakeSeed()

// coreOf a CurrentCoreStateSummary.
func coreOf(summary []byte) (c core, err error) {
	var sequencers []byte
	err = eachField(summary, func(f wireField) error {
		switch f.number {
		case 1:
			return eachField(f.bytes, func(f wireField) error {
				if f.number == 2 {
					c.chip = int64(f.bits)
				}
				return nil
			})
		case 2:
			sequencers = append(append(sequencers, f.bytes...), 0xff)
		case 6:
			c.queued++
		}
		return nil
	})
	c.mark = maphash.Bytes(seed, sequencers)
	return c, err
}

// raw passes messages through gRPC as they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (raw) Unmarshal(message []byte, v any) error {
	into, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("raw messages go into *[]byte, not %T", v)
	}
	*into = append([]byte(nil), message...)
	return nil
}

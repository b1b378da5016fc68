package nvml

import (
	"encoding/binary"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// allLinks is the scope of a field value that sums over a device's NVLinks.
const allLinks = math.MaxUint32

// fields are the field values that one call asks. Ids below 250 mean the same to
// every driver.
var fields = []struct {
	id, scope uint32
	field     device.Field
	per       float64 // the value is multiplied by it
	limit     float64 // above it the value is nonsense; 0 for none
}{
	{82, 0, device.MemoryTemp, 1, 200},
	{nvml.FI_DEV_ECC_SBE_VOL_TOTAL, 0, device.ECCSingleVolatile, 1, 0},
	{nvml.FI_DEV_ECC_DBE_VOL_TOTAL, 0, device.ECCDoubleVolatile, 1, 0},
	{nvml.FI_DEV_ECC_SBE_AGG_TOTAL, 0, device.ECCSingleAggregate, 1, 0},
	{nvml.FI_DEV_ECC_DBE_AGG_TOTAL, 0, device.ECCDoubleAggregate, 1, 0},
	{nvml.FI_DEV_RETIRED_SBE, 0, device.RetiredSingle, 1, 0},
	{nvml.FI_DEV_RETIRED_DBE, 0, device.RetiredDouble, 1, 0},
	{nvml.FI_DEV_RETIRED_PENDING, 0, device.RetiredPending, 1, 0},
	{nvml.FI_DEV_PERF_POLICY_POWER, 0, device.PowerViolation, 1, 0},
	{nvml.FI_DEV_PERF_POLICY_THERMAL, 0, device.ThermalViolation, 1, 0},
	{nvml.FI_DEV_PERF_POLICY_SYNC_BOOST, 0, device.SyncBoostViolation, 1, 0},
	{nvml.FI_DEV_PERF_POLICY_BOARD_LIMIT, 0, device.BoardLimitViolation, 1, 0},
	{nvml.FI_DEV_PERF_POLICY_LOW_UTILIZATION, 0, device.LowUtilViolation, 1, 0},
	{nvml.FI_DEV_PERF_POLICY_RELIABILITY, 0, device.ReliabilityViolation, 1, 0},
	{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, allLinks, device.NVLinkTx, 1024, 0},
	{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, allLinks, device.NVLinkRx, 1024, 0},
}

// fieldValues asks all of them at once. The call may succeed where a value does
// not: its own return code counts.
func fieldValues(d nvml.Device, r *device.Reading) nvml.Return {
	values := make([]nvml.FieldValue, len(fields))
	for i, f := range fields {
		values[i].FieldId, values[i].ScopeId = f.id, f.scope
	}
	if ret := d.GetFieldValues(values); ret != nvml.SUCCESS {
		return ret
	}
	for i, f := range fields {
		if nvml.Return(values[i].NvmlReturn) != nvml.SUCCESS {
			continue
		}
		if v, ok := decode(values[i]); ok && (f.limit == 0 || v <= f.limit) {
			r.Set(f.field, v*f.per)
		}
	}
	return nvml.SUCCESS
}

// decode a value of the type that it says it has.
func decode(v nvml.FieldValue) (float64, bool) {
	bits := binary.NativeEndian.Uint64(v.Value[:])
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(bits), true
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(binary.NativeEndian.Uint32(v.Value[:])), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(bits), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(bits)), true
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(binary.NativeEndian.Uint32(v.Value[:]))), true
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return float64(binary.NativeEndian.Uint16(v.Value[:])), true
	case nvml.VALUE_TYPE_COUNT: // no type, but how many there are
	}
	return 0, false
}

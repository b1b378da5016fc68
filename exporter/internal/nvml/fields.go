package nvml

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// allLinks is the scope of a field value that sums over a device's NVLinks.
const allLinks = math.MaxUint32

// fieldValue is one value of the call that asks them all.
type fieldValue struct {
	id, scope uint32
	field     device.Field
	per       float64 // the value is multiplied by it
	wide      bool    // of 32 bits it says nothing: it wraps between two readings
}

// fields have ids below 250, which mean the same to every driver.
var fields = []fieldValue{
	{nvml.FI_DEV_MEMORY_TEMP, 0, device.MemoryTemp, 1, false},
	{nvml.FI_DEV_ECC_SBE_VOL_TOTAL, 0, device.ECCSingleVolatile, 1, false},
	{nvml.FI_DEV_ECC_DBE_VOL_TOTAL, 0, device.ECCDoubleVolatile, 1, false},
	{nvml.FI_DEV_ECC_SBE_AGG_TOTAL, 0, device.ECCSingleAggregate, 1, false},
	{nvml.FI_DEV_ECC_DBE_AGG_TOTAL, 0, device.ECCDoubleAggregate, 1, false},
	{nvml.FI_DEV_RETIRED_SBE, 0, device.RetiredSingle, 1, false},
	{nvml.FI_DEV_RETIRED_DBE, 0, device.RetiredDouble, 1, false},
	{nvml.FI_DEV_RETIRED_PENDING, 0, device.RetiredPending, 1, false},
	{nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, 0, device.NVLinkFlitErrors, 1, false},
	{nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, 0, device.NVLinkDataErrors, 1, false},
	{nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0, device.NVLinkReplays, 1, false},
	{nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, 0, device.NVLinkRecoveries, 1, false},
	{nvml.FI_DEV_PERF_POLICY_POWER, 0, device.PowerViolation, 1, false},
	{nvml.FI_DEV_PERF_POLICY_THERMAL, 0, device.ThermalViolation, 1, false},
	{nvml.FI_DEV_PERF_POLICY_SYNC_BOOST, 0, device.SyncBoostViolation, 1, false},
	{nvml.FI_DEV_PERF_POLICY_BOARD_LIMIT, 0, device.BoardLimitViolation, 1, false},
	{nvml.FI_DEV_PERF_POLICY_LOW_UTILIZATION, 0, device.LowUtilViolation, 1, false},
	{nvml.FI_DEV_PERF_POLICY_RELIABILITY, 0, device.ReliabilityViolation, 1, false},
	{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, allLinks, device.NVLinkTx, 1024, false},
	{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, allLinks, device.NVLinkRx, 1024, false},
	{nvml.FI_DEV_POWER_MIN_LIMIT, 0, device.PowerMin, 0.001, false},
	{nvml.FI_DEV_POWER_MAX_LIMIT, 0, device.PowerMax, 0.001, false},
	{nvml.FI_DEV_POWER_DEFAULT_LIMIT, 0, device.PowerDefault, 0.001, false},
	{nvml.FI_DEV_PCIE_COUNT_TX_BYTES, 0, device.PCIeTxBytes, 1, true},
	{nvml.FI_DEV_PCIE_COUNT_RX_BYTES, 0, device.PCIeRxBytes, 1, true},
}

// moved are the fields whose first id another driver gives to something else.
// Between the versions that are known they are left out.
var moved = []struct {
	from, to int // major versions of the driver
	first    uint32
}{{570, 580, 251}, {595, math.MaxInt, nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN}}

// fieldsOf are the field values that mean what they should to a driver.
func fieldsOf(driver string) []fieldValue {
	major, _, _ := strings.Cut(driver, ".")
	version, _ := strconv.Atoi(major) // 0, which has none of them, where it is no number
	for _, m := range moved {
		if version >= m.from && version <= m.to {
			return append(slices.Clip(fields),
				fieldValue{m.first, 0, device.SWThermalSlowdown, 1, false},
				fieldValue{m.first + 1, 0, device.HWThermalSlowdown, 1, false},
				fieldValue{m.first + 2, 0, device.HWPowerBrake, 1, false})
		}
	}
	return fields
}

// fieldValues asks all of them at once. The call may succeed where a value does
// not: its own return code counts.
func fieldValues(u *unit, r *device.Reading) nvml.Return {
	values := make([]nvml.FieldValue, len(u.fields))
	for i, f := range u.fields {
		values[i].FieldId, values[i].ScopeId = f.id, f.scope
	}
	if ret := u.GetFieldValues(values); ret != nvml.SUCCESS {
		return ret
	}
	for i, f := range u.fields {
		narrow := nvml.ValueType(values[i].ValueType) == nvml.VALUE_TYPE_UNSIGNED_INT
		if nvml.Return(values[i].NvmlReturn) != nvml.SUCCESS || f.wide && narrow {
			continue
		}
		if v, ok := decode(values[i]); ok {
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

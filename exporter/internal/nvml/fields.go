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

// allLinks is the scope of field values summed over all NVLinks of a device.
const allLinks = math.MaxUint32

// fieldValue is a value read with nvmlDeviceGetFieldValues.
type fieldValue struct {
	id, scope uint32
	field     device.Field
	scale     float64 // factor from the driver's unit to the field's unit
	// wideOnly ignores 32-bit values, because the counter can wrap between two readings.
	wideOnly bool
}

// commonFields have IDs below 250, which mean the same in every driver.
var commonFields = []fieldValue{
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
	{nvml.FI_DEV_NVLINK_ERROR_DL_CRC, allLinks, device.NVLinkCRCErrors, 1, false},
	{nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, allLinks, device.NVLinkHopperReplays, 1, false},
	{nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, allLinks, device.NVLinkHopperRecoveries, 1, false},
	{nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS, allLinks, device.NVLinkRecoveriesSucceeded, 1, false},
	{nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, allLinks, device.NVLinkRecoveriesFailed, 1, false},
	{nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, allLinks, device.NVLinkRecoveryEvents, 1, false},
	{nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, allLinks, device.NVLinkSymbolErrors, 1, false},
	{nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, allLinks, device.NVLinkEffectiveErrors, 1, false},
	{nvml.FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS, allLinks, device.NVLinkMalformedPackets, 1, false},
	{nvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS, allLinks, device.NVLinkReceiveErrors, 1, false},
	{nvml.FI_DEV_POWER_MIN_LIMIT, 0, device.PowerMin, 0.001, false},
	{nvml.FI_DEV_POWER_MAX_LIMIT, 0, device.PowerMax, 0.001, false},
	{nvml.FI_DEV_POWER_DEFAULT_LIMIT, 0, device.PowerDefault, 0.001, false},
	{nvml.FI_DEV_PCIE_COUNT_TX_BYTES, 0, device.PCIeTxBytes, 1, true},
	{nvml.FI_DEV_PCIE_COUNT_RX_BYTES, 0, device.PCIeRxBytes, 1, true},
}

// slowdownCounters lists where drivers have the slowdown counters: three consecutive field
// IDs from first on. Other driver versions use these IDs for other values, so the counters
// are only read from the listed major versions.
var slowdownCounters = []struct {
	minMajor, maxMajor int
	first              uint32
}{
	{570, 580, 251},
	{595, math.MaxInt, nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN},
}

// fieldsFor returns the field values supported by a driver version such as 580.65.06.
func fieldsFor(driver string) []fieldValue {
	majorText, _, _ := strings.Cut(driver, ".")
	major, err := strconv.Atoi(majorText)
	if err != nil {
		return commonFields
	}
	for _, c := range slowdownCounters {
		if major >= c.minMajor && major <= c.maxMajor {
			return append(slices.Clip(commonFields),
				fieldValue{c.first, 0, device.SWThermalSlowdown, 1, false},
				fieldValue{c.first + 1, 0, device.HWThermalSlowdown, 1, false},
				fieldValue{c.first + 2, 0, device.HWPowerBrake, 1, false})
		}
	}
	return commonFields
}

// readFieldValues reads all field values with one call. Each value has its own return code:
// the call can succeed without some of the values.
func readFieldValues(h *deviceHandle, r *device.Reading) nvml.Return {
	values := make([]nvml.FieldValue, len(h.fields))
	for i, f := range h.fields {
		values[i].FieldId, values[i].ScopeId = f.id, f.scope
	}
	if ret := h.GetFieldValues(values); ret != nvml.SUCCESS {
		return ret
	}
	for i, f := range h.fields {
		switch ret := nvml.Return(values[i].NvmlReturn); ret {
		case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
			return ret
		}
		isNarrow := nvml.ValueType(values[i].ValueType) == nvml.VALUE_TYPE_UNSIGNED_INT
		if nvml.Return(values[i].NvmlReturn) != nvml.SUCCESS || f.wideOnly && isNarrow {
			continue
		}
		if v, ok := decodeValue(values[i]); ok {
			r.Set(f.field, v*f.scale)
		}
	}
	return nvml.SUCCESS
}

// decodeValue converts a field value according to its type. It returns false for an unknown
// type.
func decodeValue(v nvml.FieldValue) (float64, bool) {
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
	case nvml.VALUE_TYPE_COUNT: // the number of types, not a type
	}
	return 0, false
}

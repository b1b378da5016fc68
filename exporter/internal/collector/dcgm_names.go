package collector

import "strings"

// Dialects of dcgm-exporter's metrics, the values of --compat.
const (
	DialectLegacy = "legacy" // up to dcgm-exporter 4.8.2: label Hostname
	Dialect48     = "4.8"    // 4.8.3 and 4.8.4: label hostname
	Dialect49     = "4.9"    // 4.9.0: label hostname, names and units of DCGM 4.7
)

// isSince483 reports whether a dialect is that of dcgm-exporter 4.8.3 or newer.
func isSince483(dialect string) bool { return dialect == Dialect48 || dialect == Dialect49 }

// currentName is the name of a field since DCGM 4.7, which dcgm-exporter 4.9 exports. If the
// unit changed, factor converts from the older unit, and unit and help describe the new one.
type currentName struct {
	name, unit, help string
	factor           float64
	whole            bool // DCGM truncates the value to a whole number
}

// currentNames are the names since DCGM 4.7 by older name. Names without a unit keep the
// unit of the older name. Older names that are not listed have not changed.
var currentNames = map[string]currentName{
	"DCGM_FI_DEV_SM_CLOCK":                                     {"DCGM_FI_DEV_SM_CLOCK_HERTZ", "Hz", "SM clock frequency (in Hz).", 1e6, false},
	"DCGM_FI_DEV_MEM_CLOCK":                                    {"DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", "Hz", "Memory clock frequency (in Hz).", 1e6, false},
	"DCGM_FI_DEV_MEMORY_TEMP":                                  {name: "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"},
	"DCGM_FI_DEV_GPU_TEMP":                                     {name: "DCGM_FI_DEV_GPU_TEMP_CELSIUS"},
	"DCGM_FI_DEV_GPU_TEMP_LIMIT":                               {name: "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS"},
	"DCGM_FI_DEV_SLOWDOWN_TEMP":                                {name: "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS"},
	"DCGM_FI_DEV_POWER_USAGE":                                  {name: "DCGM_FI_DEV_BOARD_POWER_WATTS"},
	"DCGM_FI_DEV_POWER_MGMT_LIMIT":                             {name: "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS"},
	"DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN":                         {name: "DCGM_FI_DEV_BOARD_POWER_LIMIT_MIN_WATTS"},
	"DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX":                         {name: "DCGM_FI_DEV_BOARD_POWER_LIMIT_MAX_WATTS"},
	"DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF":                         {name: "DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS"},
	"DCGM_FI_DEV_ENFORCED_POWER_LIMIT":                         {name: "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"},
	"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":                     {"DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "J", "Total energy consumption since boot (in J).", 1e-3, true},
	"DCGM_FI_DEV_PCIE_REPLAY_COUNTER":                          {name: "DCGM_FI_DEV_PCIE_REPLAY_TOTAL"},
	"DCGM_FI_DEV_GPU_UTIL":                                     {"DCGM_FI_DEV_GPU_UTIL_RATIO", "0..1", "GPU utilization (0..1).", 0.01, false},
	"DCGM_FI_DEV_MEM_COPY_UTIL":                                {"DCGM_FI_DEV_MEMORY_UTIL_RATIO", "0..1", "Memory utilization (0..1).", 0.01, false},
	"DCGM_FI_DEV_ENC_UTIL":                                     {"DCGM_FI_DEV_ENC_UTIL_RATIO", "0..1", "Encoder utilization (0..1).", 0.01, false},
	"DCGM_FI_DEV_DEC_UTIL":                                     {"DCGM_FI_DEV_DEC_UTIL_RATIO", "0..1", "Decoder utilization (0..1).", 0.01, false},
	"DCGM_FI_DEV_XID_ERRORS":                                   {name: "DCGM_FI_DEV_XID_ERROR"},
	"DCGM_FI_DEV_FB_TOTAL":                                     {"DCGM_FI_DEV_FB_CAPACITY_BYTES", "bytes", "Framebuffer memory total (in bytes).", 1 << 20, false},
	"DCGM_FI_DEV_FB_FREE":                                      {"DCGM_FI_DEV_FB_FREE_BYTES", "bytes", "Framebuffer memory free (in bytes).", 1 << 20, false},
	"DCGM_FI_DEV_FB_USED":                                      {"DCGM_FI_DEV_FB_USED_BYTES", "bytes", "Framebuffer memory used (in bytes).", 1 << 20, false},
	"DCGM_FI_DEV_FB_RESERVED":                                  {"DCGM_FI_DEV_FB_RESERVED_BYTES", "bytes", "Framebuffer memory reserved (in bytes).", 1 << 20, false},
	"DCGM_FI_DEV_FB_USED_PERCENT":                              {name: "DCGM_FI_DEV_FB_USED_RATIO"},
	"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS":                       {name: "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"},
	"DCGM_FI_DEV_RETIRED_SBE":                                  {name: "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL"},
	"DCGM_FI_DEV_RETIRED_DBE":                                  {name: "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL"},
	"DCGM_FI_DEV_RETIRED_PENDING":                              {name: "DCGM_FI_DEV_PAGE_RETIRED_PENDING"},
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS":                  {name: "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"},
	"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS":                    {name: "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL"},
	"DCGM_FI_DEV_ROW_REMAP_FAILURE":                            {name: "DCGM_FI_DEV_ROW_REMAP_FAILED"},
	"DCGM_FI_DEV_POWER_VIOLATION":                              {"DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", "s", "Throttling duration due to power constraints (in s).", 1e-9, false},
	"DCGM_FI_DEV_THERMAL_VIOLATION":                            {"DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", "s", "Throttling duration due to thermal constraints (in s).", 1e-9, false},
	"DCGM_FI_DEV_SYNC_BOOST_VIOLATION":                         {"DCGM_FI_DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL", "s", "Throttling duration due to sync-boost constraints (in s).", 1e-9, false},
	"DCGM_FI_DEV_BOARD_LIMIT_VIOLATION":                        {"DCGM_FI_DEV_GPU_LIMIT_THROTTLE_SECONDS_TOTAL", "s", "Throttling duration due to board limit constraints (in s).", 1e-9, false},
	"DCGM_FI_DEV_LOW_UTIL_VIOLATION":                           {"DCGM_FI_DEV_GPU_LOW_UTIL_THROTTLE_SECONDS_TOTAL", "s", "Throttling duration due to low utilization (in s).", 1e-9, false},
	"DCGM_FI_DEV_RELIABILITY_VIOLATION":                        {"DCGM_FI_DEV_GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL", "s", "Throttling duration due to reliability constraints (in s).", 1e-9, false},
	"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL":                       {"DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", "B/s", "Throughput of all NVLinks in both directions (in bytes per second).", 1000 * 1024, true},
	"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL":            {name: "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL"},
	"DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL":            {name: "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL"},
	"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL":              {name: "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL"},
	"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL":            {name: "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL"},
	"DCGM_FI_DEV_NVLINK_ERROR_DL_CRC":                          {name: "DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL"},
	"DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY":                       {name: "DCGM_FI_DEV_NVLINK_REPLAY_TOTAL"},
	"DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY":                     {name: "DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL"},
	"DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS": {name: "DCGM_FI_DEV_NVLINK_RECOVERY_SUCCESSFUL_TOTAL"},
	"DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS":     {name: "DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL"},
	"DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS":            {name: "DCGM_FI_DEV_NVLINK_RECOVERY_EVENT_TOTAL"},
	"DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS":                {name: "DCGM_FI_DEV_NVLINK_RX_SYMBOL_ERROR_TOTAL"},
	"DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS":                {name: "DCGM_FI_DEV_NVLINK_EFFECTIVE_ERROR_TOTAL"},
	"DCGM_FI_DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS":      {name: "DCGM_FI_DEV_NVLINK_RX_PACKET_MALFORMED_TOTAL"},
	"DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS":                       {name: "DCGM_FI_DEV_NVLINK_RX_ERROR_TOTAL"},
	"DCGM_FI_DEV_FAN_SPEED":                                    {"DCGM_FI_DEV_FAN_SPEED_RATIO", "ratio", "Fan speed (1 is the maximum).", 0.01, false},
	"DCGM_FI_DEV_PSTATE":                                       {name: "DCGM_FI_DEV_GPU_PSTATE"},
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE":                            {name: "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"},
	"DCGM_FI_PROF_SM_ACTIVE":                                   {name: "DCGM_FI_PROF_SM_UTIL_RATIO"},
	"DCGM_FI_PROF_SM_OCCUPANCY":                                {name: "DCGM_FI_PROF_SM_OCCUPANCY_RATIO"},
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":                          {name: "DCGM_FI_PROF_TENSOR_UTIL_RATIO"},
	"DCGM_FI_PROF_DRAM_ACTIVE":                                 {name: "DCGM_FI_PROF_DRAM_UTIL_RATIO"},
	"DCGM_FI_PROF_PIPE_FP64_ACTIVE":                            {name: "DCGM_FI_PROF_FP64_UTIL_RATIO"},
	"DCGM_FI_PROF_PIPE_FP32_ACTIVE":                            {name: "DCGM_FI_PROF_FP32_UTIL_RATIO"},
	"DCGM_FI_PROF_PIPE_FP16_ACTIVE":                            {name: "DCGM_FI_PROF_FP16_UTIL_RATIO"},

	// Labels.
	"DCGM_FI_DRIVER_VERSION":        {name: "DCGM_FI_SYSTEM_DRIVER_VERSION"},
	"DCGM_FI_NVML_VERSION":          {name: "DCGM_FI_SYSTEM_NVML_VERSION"},
	"DCGM_FI_DEV_BRAND":             {name: "DCGM_FI_DEV_GPU_BRAND"},
	"DCGM_FI_DEV_SERIAL":            {name: "DCGM_FI_DEV_BOARD_SERIAL"},
	"DCGM_FI_DEV_INFOROM_IMAGE_VER": {name: "DCGM_FI_DEV_INFOROM_IMAGE_VERSION"},
	"DCGM_FI_DEV_OEM_INFOROM_VER":   {name: "DCGM_FI_DEV_INFOROM_OEM_VERSION"},
	"DCGM_FI_DEV_ECC_INFOROM_VER":   {name: "DCGM_FI_DEV_INFOROM_ECC_VERSION"},
	"DCGM_FI_DEV_POWER_INFOROM_VER": {name: "DCGM_FI_DEV_INFOROM_POWER_VERSION"},
}

// otherNames are further names of fields: the name of NVLink's bandwidth in DCGM 4.6, and
// the names in dcgm-exporter's 1.x-compatibility-metrics.csv that differ from the name of
// the field in more than capital letters.
var otherNames = map[string]string{
	"DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL":    nvlinkBandwidth,
	"dcgm_memory_clock":                      "DCGM_FI_DEV_MEM_CLOCK",
	"dcgm_gpu_utilization":                   "DCGM_FI_DEV_GPU_UTIL",
	"dcgm_mem_copy_utilization":              "DCGM_FI_DEV_MEM_COPY_UTIL",
	"dcgm_enc_utilization":                   "DCGM_FI_DEV_ENC_UTIL",
	"dcgm_dec_utilization":                   "DCGM_FI_DEV_DEC_UTIL",
	"dcgm_ecc_sbe_volatile_total":            "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
	"dcgm_ecc_dbe_volatile_total":            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
	"dcgm_ecc_sbe_aggregate_total":           "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
	"dcgm_ecc_dbe_aggregate_total":           "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
	"dcgm_retired_pages_sbe":                 "DCGM_FI_DEV_RETIRED_SBE",
	"dcgm_retired_pages_dbe":                 "DCGM_FI_DEV_RETIRED_DBE",
	"dcgm_retired_pages_pending":             "DCGM_FI_DEV_RETIRED_PENDING",
	"dcgm_nvlink_flit_crc_error_count_total": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
	"dcgm_nvlink_data_crc_error_count_total": "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
}

// inDialect returns the field with its name and unit in a dialect.
func (f dcgmField) inDialect(dialect string) dcgmField {
	if isSince483(dialect) && f.name == nvlinkBandwidth {
		f.kind = gauge // dcgm-exporter 4.8.3 corrected the type in its default counter file
	}
	if current, ok := currentNames[f.name]; ok && dialect == Dialect49 {
		return f.renamed(current)
	}
	return f
}

// renamed returns the field with the name since DCGM 4.7. f.unit stays the unit of the
// device field, by which quantities differ from ratios.
func (f dcgmField) renamed(to currentName) dcgmField {
	f.name = to.name
	if to.factor != 0 {
		f.factor, f.whole, f.help, f.exportedUnit = to.factor, to.whole, to.help, to.unit
	}
	return f
}

// findField returns the field that a counter file names by any of its names.
func findField(name string) (dcgmField, bool) {
	for _, f := range append(dcgmFields[:len(dcgmFields):len(dcgmFields)], lastXIDField) {
		if f.name == name {
			return f, true
		}
		if current, ok := currentNames[f.name]; ok && current.name == name {
			return f.renamed(current), true
		}
		if olderName(name) == f.name {
			f.name = name
			return f, true
		}
	}
	return dcgmField{}, false
}

// olderName returns the field of a name in otherNames or dcgm-exporter 1.x, or an empty
// string.
func olderName(name string) string {
	if field, ok := otherNames[name]; ok {
		return field
	}
	switch rest, ok := strings.CutPrefix(name, "dcgm_"); {
	case !ok || strings.ToLower(name) != name:
		return ""
	case strings.HasPrefix(rest, "fi_"):
		return strings.ToUpper(name)
	default:
		return "DCGM_FI_DEV_" + strings.ToUpper(rest)
	}
}

// findLabel returns the label field with a name, or with its name since DCGM 4.7.
func findLabel(name string) (labelField, bool) {
	for _, l := range labelFields {
		if l.name == name {
			return l, true
		}
		if current, ok := currentNames[l.name]; ok && current.name == name {
			return labelField{name, l.value}, true
		}
	}
	return labelField{}, false
}

// version1Defaults are the metrics in dcgm-exporter's 1.x-compatibility-metrics.csv.
var version1Defaults = []string{
	"dcgm_sm_clock", "dcgm_memory_clock", "dcgm_memory_temp", "dcgm_gpu_temp", "dcgm_power_usage", "dcgm_total_energy_consumption", "dcgm_pcie_replay_counter",
	"dcgm_gpu_utilization", "dcgm_mem_copy_utilization", "dcgm_enc_utilization", "dcgm_dec_utilization", "dcgm_xid_errors", "dcgm_fb_free", "dcgm_fb_used", "dcgm_nvlink_bandwidth_total",
	"dcgm_fi_prof_gr_engine_active", "dcgm_fi_prof_pipe_tensor_active", "dcgm_fi_prof_dram_active", "dcgm_fi_prof_pcie_tx_bytes", "dcgm_fi_prof_pcie_rx_bytes",
}

// Version1Counters returns the counters of dcgm-exporter's 1.x-compatibility-metrics.csv.
func Version1Counters() (counters []Counter) {
	for _, name := range version1Defaults {
		f, _ := findField(name)
		counters = append(counters, Counter{name, strings.ToLower(f.kind.String()), f.help})
	}
	return counters
}

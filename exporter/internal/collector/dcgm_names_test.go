package collector

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// dcgm-exporter 4.9 renames 23 fields of its default counter file and changes the unit of
// 11 of them, according to its release notes.
func TestDialect49RenamesDefaults(t *testing.T) {
	older, newer := selectDefaults(Dialect48), selectDefaults(Dialect49)
	names := map[string]bool{}
	for _, f := range append(older.fields, older.xids...) {
		names[f.name] = true
	}
	renamed, converted := 1, 0 // the label of the driver version
	for _, f := range append(newer.fields, newer.xids...) {
		if !names[f.name] && f.name != "DCGM_FI_DEV_FB_CAPACITY_BYTES" {
			renamed++
			converted += int(boolValue(f.factor != 0))
		}
	}
	if renamed != 23 || converted != 11 || newer.labels[0].name != "DCGM_FI_SYSTEM_DRIVER_VERSION" {
		t.Errorf("%d renamed, %d with another unit, label %s", renamed, converted, newer.labels[0].name)
	}
	if len(newer.fields) != len(older.fields)+1 {
		t.Errorf("%d fields in 4.9, %d in 4.8", len(newer.fields), len(older.fields))
	}
}

func TestDialectsConvertUnits(t *testing.T) {
	reading := map[device.Field]float64{
		device.SMClock: 1980, device.MemClock: 2619, device.TotalEnergy: 1_234_567, device.GPUUtil: 29, device.MemCopyUtil: 100, device.EncUtil: 0, device.DecUtil: 7,
		device.FBFree: 100.5, device.FBUsed: 0.25, device.FBReserved: 3, device.FBTotal: 103.75, device.NVLinkBandwidth: 12.5, device.GPUTemp: 55, device.ThermalViolation: 1_500_000_000,
	}
	for dialect, want := range map[string][]string{
		DialectLegacy: {"DCGM_FI_DEV_SM_CLOCK 1980", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION 1234567", "DCGM_FI_DEV_GPU_UTIL 29", "DCGM_FI_DEV_FB_FREE 100", "DCGM_FI_DEV_FB_USED 0",
			"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL 12", "DCGM_FI_DEV_GPU_TEMP 55", "DCGM_FI_DEV_THERMAL_VIOLATION 1.5e+09"},
		Dialect49: {"DCGM_FI_DEV_SM_CLOCK_HERTZ 1.98e+09", "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ 2.619e+09", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL 1234", "DCGM_FI_DEV_GPU_UTIL_RATIO 0.29",
			"DCGM_FI_DEV_MEMORY_UTIL_RATIO 1", "DCGM_FI_DEV_ENC_UTIL_RATIO 0", "DCGM_FI_DEV_DEC_UTIL_RATIO 0.07", "DCGM_FI_DEV_FB_FREE_BYTES 1.05381888e+08", "DCGM_FI_DEV_FB_USED_BYTES 262144",
			"DCGM_FI_DEV_FB_RESERVED_BYTES 3.145728e+06", "DCGM_FI_DEV_FB_CAPACITY_BYTES 1.08789760e+08", "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND 1.28e+07", "DCGM_FI_DEV_GPU_TEMP_CELSIUS 55",
			"DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL 1.5"},
	} {
		t.Run(dialect, func(t *testing.T) {
			f := setup(t)
			f.cfg.Labels.Dialect = dialect
			f.SetEverything()
			f.source.override = func(_ device.Device, r *device.Reading) {
				for field, v := range reading {
					r.Set(field, v)
				}
			}
			families, text := f.collect(t)
			for _, line := range want {
				name, number, _ := strings.Cut(line, " ")
				wanted, err := strconv.ParseFloat(number, 64)
				if got := value(t, families, name, "gpu", "0"); err != nil || got != wanted {
					t.Errorf("%s %v, want %s", name, got, number)
				}
			}
			if strings.Contains(text, "DCGM_FI_DEV_GPU_UTIL{") == (dialect == Dialect49) {
				t.Errorf("the names are of another dialect:\n%.500s", text)
			}
			if host := `,hostname="node-1",DCGM_FI_SYSTEM_DRIVER_VERSION="580.1"`; strings.Contains(text, host) != (dialect == Dialect49) {
				t.Errorf("labels: %.500s", text)
			}
		})
	}
}

// Every name in dcgm-exporter's 1.x-compatibility-metrics.csv that DCGM still provides
// selects its field and keeps its name.
func TestCounterFileOfVersion1(t *testing.T) {
	var counters []Counter
	for _, name := range strings.Fields(`dcgm_sm_clock dcgm_memory_clock dcgm_memory_temp dcgm_gpu_temp dcgm_power_usage dcgm_total_energy_consumption dcgm_pcie_tx_throughput
		dcgm_pcie_rx_throughput dcgm_pcie_replay_counter dcgm_gpu_utilization dcgm_mem_copy_utilization dcgm_enc_utilization dcgm_dec_utilization dcgm_xid_errors dcgm_power_violation
		dcgm_thermal_violation dcgm_sync_boost_violation dcgm_board_limit_violation dcgm_low_util_violation dcgm_reliability_violation dcgm_fb_free dcgm_fb_used dcgm_ecc_sbe_volatile_total
		dcgm_ecc_dbe_volatile_total dcgm_ecc_sbe_aggregate_total dcgm_ecc_dbe_aggregate_total dcgm_retired_pages_sbe dcgm_retired_pages_dbe dcgm_retired_pages_pending
		dcgm_nvlink_flit_crc_error_count_total dcgm_nvlink_data_crc_error_count_total dcgm_nvlink_replay_error_count_total dcgm_nvlink_recovery_error_count_total dcgm_nvlink_bandwidth_total
		dcgm_fi_prof_gr_engine_active dcgm_fi_prof_sm_active dcgm_fi_prof_sm_occupancy dcgm_fi_prof_pipe_tensor_active dcgm_fi_prof_dram_active dcgm_fi_prof_pcie_tx_bytes dcgm_fi_prof_pcie_rx_bytes`) {
		counters = append(counters, Counter{name, "gauge", "Help."})
	}
	f := setup(t)
	// DCGM does not support these two either.
	if unsupported := f.SetCounters(counters); !slices.Equal(unsupported, []string{"dcgm_pcie_tx_throughput", "dcgm_pcie_rx_throughput"}) {
		t.Errorf("unsupported: %q", unsupported)
	}
	families, _ := f.collect(t)
	if got := value(t, families, "dcgm_gpu_utilization", "gpu", "0"); got != 10 {
		t.Errorf("dcgm_gpu_utilization %v", got)
	}
	if families["dcgm_xid_errors"] == nil || families["DCGM_FI_DEV_GPU_UTIL"] != nil {
		t.Error("the metrics do not have the names of the counter file")
	}
}

// A counter file can use the names of DCGM 4.7 with any dialect.
func TestCounterFileWithCurrentNames(t *testing.T) {
	f := setup(t)
	unsupported := f.SetCounters([]Counter{{"DCGM_FI_DEV_GPU_UTIL_RATIO", "gauge", "Busy."}, {"DCGM_FI_DEV_GPU_UTIL", "gauge", "Busy."}, {"DCGM_FI_DEV_XID_ERROR", "gauge", "XID."},
		{"DCGM_FI_SYSTEM_DRIVER_VERSION", "label", ""}, {"DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL", "gauge", "NVLink."}})
	if len(unsupported) > 0 {
		t.Errorf("unsupported: %q", unsupported)
	}
	families, text := f.collect(t)
	if got := value(t, families, "DCGM_FI_DEV_GPU_UTIL_RATIO", "gpu", "0"); got != 0.1 {
		t.Errorf("ratio %v", got)
	}
	if value(t, families, "DCGM_FI_DEV_GPU_UTIL", "gpu", "0") != 10 || families["DCGM_FI_DEV_XID_ERROR"] == nil || !strings.Contains(text, `,DCGM_FI_SYSTEM_DRIVER_VERSION="580.1"`) {
		t.Errorf("%.800s", text)
	}
}

package collector

import "strconv"

// xidMessages describe the common XIDs of NVIDIA's catalog.
var xidMessages = map[uint64]string{
	0:  "No Error",
	8:  "GPU stopped processing",
	13: "Graphics engine exception",
	31: "GPU memory page fault",
	32: "Corrupted push buffer",
	38: "Driver firmware error",
	43: "GPU stopped processing for a program",
	44: "Graphics engine fault in a context switch",
	45: "Preemptive cleanup after earlier errors",
	48: "Double-bit ECC error",
	61: "Internal micro-controller breakpoint",
	62: "Internal micro-controller halt",
	63: "Row remapping or page retirement recorded",
	64: "Row remapping or page retirement failed",
	68: "Video processor exception",
	69: "Graphics engine class error",
	74: "NVLink error",
	79: "GPU fell off the bus",
	92: "High rate of single-bit ECC errors",
	94: "Contained ECC error",
	95: "Uncontained ECC error",

	119: "GSP RPC timeout",
	120: "GSP error",
}

// xidLabels returns the labels that describe the last XID.
func xidLabels(xid uint64) []label {
	message, ok := xidMessages[xid]
	if !ok {
		message = "Unknown Error"
	}
	return []label{{"err_code", strconv.FormatUint(xid, 10)}, {"err_msg", message}}
}

// Severities of an XID. They follow the immediate action in NVIDIA's XID catalog for Ampere
// and newer GPUs (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
const (
	xidCritical    = "critical"    // reset or restart the device or node, check its hardware, or contact the vendor
	xidWarning     = "warning"     // investigate; the device keeps working
	xidApplication = "application" // restart the application
	xidInfo        = "info"        // ignore
	xidUnknown     = "unknown"     // not in the catalog, or marked there as unused
)

// xidSeverities are the severities of the codes in the catalog. Codes from 162 on have no
// action there and are classified by their description.
var xidSeverities = codesBySeverity(map[string][]uint64{
	xidCritical: {46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 142, 143, 149, 151, 155, 156, 158, 167, 169, 171, 172},
	// 144 to 150 are NVLink errors whose subcode decides. Only all of 149 are fatal.
	xidWarning: {78, 92, 94, 144, 145, 146, 147, 148, 150, 154, 157, 159, 160, 161, 163, 164, 165, 166, 168, 170},
	xidApplication: {8, 11, 13, 25, 31, 32, 39, 40, 41, 43, 45, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105,
		126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 137, 139},
	xidInfo: {14, 37, 38, 44, 63, 66, 67, 93, 106, 107, 108, 121, 141, 152, 153, 162},
})

func codesBySeverity(codes map[string][]uint64) map[uint64]string {
	severities := map[uint64]string{}
	for severity, list := range codes {
		for _, code := range list {
			severities[code] = severity
		}
	}
	return severities
}

// severity returns the severity of an XID.
func severity(xid uint64) string {
	if s, ok := xidSeverities[xid]; ok {
		return s
	}
	return xidUnknown
}

package collector

import "strconv"

// xidMessages say what the commoner XIDs of NVIDIA's catalog are of.
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

	119: "GSP did not answer in time",
	120: "GSP error",
}

// xidAttributes name the XID that was latched last.
func xidAttributes(xid uint64) []label {
	message, ok := xidMessages[xid]
	if !ok {
		message = "Unknown Error"
	}
	return []label{{"err_code", strconv.FormatUint(xid, 10)}, {"err_msg", message}}
}

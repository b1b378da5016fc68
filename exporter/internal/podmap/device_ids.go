package podmap

import (
	"regexp"
	"strings"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Part is the device that an id names a part of, such as a MIG instance.
type Part struct {
	Device  string // name of the whole device: a UUID, or nvidia0
	Profile string // of the MIG instance in the notation of resource claims, such as 1g10gb; empty if the id has none
}

// deviceID is the meaning of an id of a device plugin or of a resource claim.
type deviceID struct {
	name     string // name of the device, as in device.Device.Names
	replica  string // name of a replica; empty for the device itself
	provider string // writer of the replica's id; empty for the device itself
	part     Part   // empty for the name of a whole device, and if the whole device is unknown
	shared   bool   // the device has further holders, even if the id names no replica
}

// Providers of replicas.
const (
	providerNVIDIA = "nvidia" // time-slicing and MPS
	providerGKE    = "gke"    // time-slicing and MPS
	// ProviderHAMi is HAMi's device plugin.
	ProviderHAMi = "hami"
)

const uuidPattern = `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`

// Formats of ids. A UUID is matched as a whole, so that a suffix which no known plugin
// writes makes the id unknown. testdata/device_ids.yaml contains ids of each format and
// their sources.
var (
	wholeUUID   = regexp.MustCompile(`^(GPU-` + uuidPattern + `)(?:::(\d+)|-(\d+))?$`)
	migUUID     = regexp.MustCompile(`^(MIG-` + uuidPattern + `)(?:::(\d+))?$`)
	migNumbers  = regexp.MustCompile(`^MIG-((GPU-` + uuidPattern + `)/\d+/\d+)(?:::(\d+))?$`)
	deviceNode  = regexp.MustCompile(`^((nvidia\d+)(/gi\d+)?)(?:::(\d+)|/vgpu(\d+))?$`)
	tpuDevice   = regexp.MustCompile(`^(?:accel|vfio/|vfio)?(\d+)$`)
	claimedGPU  = regexp.MustCompile(`^gpu-(\d+)$`)
	claimedMIG  = regexp.MustCompile(`^gpu-(\d+)-mig-(\d+)-(\d+)-\d+$`)
	claimedMIG2 = regexp.MustCompile(`^gpu-(\d+)-mig-(\d+(?:c\d+)?g[0-9a-z-]*)-(\d+)-(\d+)$`)
	claimedHAMi = regexp.MustCompile(`^hami-gpu-(\d+)$`)
	amdDevice   = regexp.MustCompile(`^(?:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|amdgpu_xcp_\d+)$`)
	claimedAMD  = regexp.MustCompile(`^gpu-\d+-(\d+)$`)
	amdResource = regexp.MustCompile(`^amd\.com/(?:gpu|[sdtqc]px_nps\d)$`)
)

// parseNVIDIA parses an id of a device plugin for NVIDIA devices.
//
//	GPU-<uuid>, GPU-<uuid>::3                 NVIDIA's plugin: a device, a replica
//	MIG-<uuid>, MIG-<uuid>::3                 NVIDIA's plugin: a MIG instance, a replica
//	MIG-GPU-<uuid>/<gi>/<ci>                  the same with drivers before 470
//	GPU-<uuid>-3                              HAMi's plugin: a replica
//	nvidia0, nvidia0/vgpu1                    GKE's plugin: a device, a replica
//	nvidia0/gi3, nvidia0/gi3/vgpu1            GKE's plugin: a MIG instance, a replica
func parseNVIDIA(raw string) (id deviceID, ok bool) {
	if m := wholeUUID.FindStringSubmatch(raw); m != nil {
		if m[3] != "" {
			return replicaOf(deviceID{name: m[1]}, m[3], ProviderHAMi), true
		}
		return replicaOf(deviceID{name: m[1]}, m[2], providerNVIDIA), true
	}
	if m := migUUID.FindStringSubmatch(raw); m != nil {
		return replicaOf(deviceID{name: m[1]}, m[2], providerNVIDIA), true
	}
	if m := migNumbers.FindStringSubmatch(raw); m != nil {
		return replicaOf(deviceID{name: m[1], part: Part{Device: m[2]}}, m[3], providerNVIDIA), true
	}
	if m := deviceNode.FindStringSubmatch(raw); m != nil {
		id = deviceID{name: m[1]}
		if m[3] != "" {
			id.part.Device = m[2]
		}
		if m[4] != "" {
			return replicaOf(id, m[4], providerNVIDIA), true
		}
		return replicaOf(id, m[5], providerGKE), true
	}
	return deviceID{}, false
}

// replicaOf returns the id of a replica of a device, or of the device if replica is empty.
func replicaOf(id deviceID, replica, provider string) deviceID {
	if replica != "" {
		id.replica, id.provider = replica, provider
	}
	return id
}

// parseTPU parses an id of Google's device plugin or DRA driver. They name chips by their
// device nodes: accel0 for TPU v4 and older, and the number of the VFIO group for v5e and
// newer.
func parseTPU(raw string) (id deviceID, ok bool) {
	m := tpuDevice.FindStringSubmatch(raw)
	if m == nil {
		return deviceID{}, false
	}
	return deviceID{name: "tpu" + m[1]}, true
}

// parseNVIDIAClaim parses a device of NVIDIA's DRA driver. The number after gpu- is the
// minor number of the device.
//
//	gpu-0                                        a device
//	gpu-0-mig-<profile id>-<start>-<size>        a MIG instance, up to version 25.8
//	gpu-0-mig-<profile>-<profile id>-<start>     a MIG instance, from version 25.12 on
//
// A device gpu-vfio-<n> is bound to the vfio driver, and NVML does not list it. The number
// is not its minor number, so the id is unknown.
func parseNVIDIAClaim(raw string) (id deviceID, ok bool) {
	if m := claimedGPU.FindStringSubmatch(raw); m != nil {
		return deviceID{name: "nvidia" + m[1]}, true
	}
	minor, profile, profileID, start := "", "", "", ""
	if m := claimedMIG.FindStringSubmatch(raw); m != nil {
		minor, profileID, start = m[1], m[2], m[3]
	} else if m := claimedMIG2.FindStringSubmatch(raw); m != nil {
		minor, profile, profileID, start = m[1], m[2], m[3], m[4]
	} else {
		return deviceID{}, false
	}
	return deviceID{name: "nvidia" + minor + "/mig-" + profileID + "-" + start, part: Part{"nvidia" + minor, profile}}, true
}

// parseHAMiClaim parses a device of HAMi's DRA driver. Claims share such a device, and the
// kubelet does not report their sizes.
func parseHAMiClaim(raw string) (id deviceID, ok bool) {
	if m := claimedHAMi.FindStringSubmatch(raw); m != nil {
		return deviceID{name: "nvidia" + m[1], shared: true}, true
	}
	return deviceID{}, false
}

// parseAMD parses an id of AMD's device plugin.
//
//	0000:19:00.0              a GPU, or its first partition: the PCI address
//	amdgpu_xcp_3              another partition: the name of its platform device
func parseAMD(raw string) (id deviceID, ok bool) {
	return deviceID{name: raw}, amdDevice.MatchString(raw)
}

// parseAMDClaim parses a device of AMD's DRA driver, gpu-<card>-<render node>: gpu-1-129 is
// the GPU or partition of the device node renderD129.
func parseAMDClaim(raw string) (id deviceID, ok bool) {
	if m := claimedAMD.FindStringSubmatch(raw); m != nil {
		return deviceID{name: "renderD" + m[1]}, true
	}
	return deviceID{}, false
}

// DRA drivers whose devices a source lists.
const (
	NVIDIADriver = "gpu.nvidia.com"
	HAMiDriver   = "hami-core-gpu.project-hami.io"
	GoogleDriver = "tpu.google.com"
	AMDDriver    = "gpu.amd.com"
)

var claimDrivers = map[string]func(raw string) (deviceID, bool){
	NVIDIADriver: parseNVIDIAClaim,
	HAMiDriver:   parseHAMiClaim,
	GoogleDriver: parseTPU,
	AMDDriver:    parseAMDClaim,
}

const tpuResource = "google.com/tpu"

// isNVIDIAResource reports whether a resource of NVIDIA's device plugin counts devices.
// Other resources below nvidia.com do not: some are network cards.
func isNVIDIAResource(name string) bool {
	return name == "nvidia.com/gpu" || name == "nvidia.com/gpu.shared" || strings.HasPrefix(name, "nvidia.com/mig-")
}

// parsePlugin parses an id of a device plugin. An id of unknown format keeps its text, so
// that it counts, behind its resource, so that it equals no name of a device.
func (m *Map) parsePlugin(resource, raw string) deviceID {
	parse := parseNVIDIA
	switch {
	case resource == tpuResource:
		parse = parseTPU
	case amdResource.MatchString(resource):
		parse = parseAMD
	}
	id, ok := parse(raw)
	if !ok {
		return m.unknownFormat(resource, raw)
	}
	id.shared = id.shared || id.replica != "" || strings.HasSuffix(resource, ".shared")
	return id
}

// parseClaim parses a device of a resource claim. ok is false for the claim of a driver
// whose devices no source lists.
func (m *Map) parseClaim(r *podresources.ClaimResource) (id deviceID, ok bool) {
	parse := claimDrivers[r.DriverName]
	if parse == nil {
		return deviceID{}, false
	}
	m.ClaimDrivers[r.DriverName] = true
	id, known := parse(r.DeviceName)
	if !known {
		return m.unknownFormat(r.DriverName, r.DeviceName), true
	}
	id.shared = id.shared || r.ShareId != nil
	return id, true
}

func (m *Map) unknownFormat(origin, raw string) deviceID {
	name := origin + " " + raw
	m.UnknownFormat[name] = true
	return deviceID{name: name}
}

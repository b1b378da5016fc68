package podmap

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// podCgroup matches the cgroup of a pod below a cgroup of the kubelet, and captures the
// UID. The cgroupfs driver writes UIDs with dashes and the systemd driver with
// underscores. UIDs of static pods have no separator. A pod can have cgroups of its own, for
// example with a kubelet inside the pod: the first pod in the path is the one of the node.
//
// A path of cgroup v2 is relative to the cgroup of the exporter, so a cgroup above both is not part
// of it. With the cgroupfs driver this is that of the kubelet, or of the class of service. The path
// then begins with the pod or its class.
var podCgroup = regexp.MustCompile(`(?:^0::(?:/\.\.)+(?:/burstable|/besteffort)?/|kubepods.*?)pod(` + podUID + `)(?:\.slice)?(?:/|$)`)

const podUID = `[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}`

// PodUID returns the UID of the pod of a process. procfs is the mount point of the
// host's procfs. The UID is empty if the process belongs to no pod. PodUID fails if the
// process has exited or procfs is not the host's.
func PodUID(procfs string, pid int) (string, error) {
	text, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", fmt.Errorf("find the pod of process %d: %w", pid, err)
	}
	return podUIDOf(string(text)), nil
}

// podUIDOf returns the pod UID in a cgroup file. The file has a line for each hierarchy
// of cgroup v1 and a line for cgroup v2.
func podUIDOf(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		if m := podCgroup.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			return strings.ReplaceAll(m[1], "_", "-")
		}
	}
	return ""
}

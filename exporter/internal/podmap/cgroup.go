package podmap

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// podInCgroup is how the kubelet names a pod's cgroup, below one of its own: with
// dashes by the cgroupfs driver, with underscores by systemd's; a static pod's UID
// has neither.
var podInCgroup = regexp.MustCompile(`kubepods.*pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(\.slice)?(/|$)`)

// PodUID of a process, by its id in the procfs that is mounted there; "" for one
// that is in no pod. An error when it is gone, or procfs is not the host's.
func PodUID(procfs string, pid int) (string, error) {
	text, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", fmt.Errorf("which pod process %d is in: %w", pid, err)
	}
	return uidIn(string(text)), nil
}

// uidIn the lines of a cgroup file, one for each hierarchy of version 1 and one for
// version 2.
func uidIn(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		if m := podInCgroup.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			return strings.ReplaceAll(m[1], "_", "-")
		}
	}
	return ""
}

package podmap

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPodUID(t *testing.T) {
	const uid, container = "0c6b3e4f-8a0b-4d0e-9c1d-2f3a4b5c6d7e", "4f1d6c3b2a190807060504030201000f0e0d0c0b0a090807060504030201000f"
	const under = "0c6b3e4f_8a0b_4d0e_9c1d_2f3a4b5c6d7e"
	for name, tc := range map[string]struct{ text, want string }{
		"v1, cgroupfs":                  {"12:pids:/kubepods/besteffort/pod" + uid + "/" + container + "\n0::/\n", uid},
		"v1, guaranteed":                {"5:memory:/kubepods/pod" + uid + "/" + container + "\n", uid},
		"v1, systemd":                   {"11:devices:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/docker-" + container + ".scope\n", uid},
		"v2, systemd":                   {"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice/cri-containerd-" + container + ".scope\n", uid},
		"v2, systemd, guaranteed":       {"0::/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + container + ".scope\n", uid},
		"v2, cgroupfs":                  {"0::/kubepods/burstable/pod" + uid + "/" + container + "\n", uid},
		"v2, seen from inside a cgroup": {"0::/../../kubepods-burstable-pod" + under + ".slice/cri-containerd-" + container + ".scope\n", uid},
		"nested":                        {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod" + under + ".slice/x.scope\n", uid},
		"pod of a kubelet in the pod":   {"0::/kubepods.slice/kubepods-pod" + under + ".slice/cri-containerd-" + container + ".scope/kubelet/kubepods/besteffort/podffffffff-0000-4000-8000-000000000000/x\n", uid},
		"v2, cgroupfs, from a pod of the same class":     {"0::/../../pod" + uid + "/" + container + "\n", uid},
		"v2, cgroupfs, guaranteed":                       {"0::/../../../pod" + uid + "/" + container + "\n", uid},
		"v2, cgroupfs, from a pod of another class":      {"0::/../../../besteffort/pod" + uid + "\n", uid},
		"v2, cgroupfs, from a guaranteed pod":            {"0::/../../burstable/pod" + uid + "/" + container + "\n", uid},
		"v2, cgroupfs, pod of a kubelet in the pod":      {"0::/../../pod" + uid + "/x/kubepods/podffffffff-0000-4000-8000-000000000000/x\n", uid},
		"v2, cgroupfs, pod of a kubelet in the pod, two": {"0::/../../pod" + uid + "/pod" + "ffffffff-0000-4000-8000-000000000000/x\n", uid},
		"v2, another container of the exporter's pod":    {"0::/../" + container + "/pod" + uid + "\n", ""},
		"v2, a host's process":                           {"0::/../../../../system.slice/../pod" + uid + "/x\n", ""},
		"v2, the exporter's own cgroup":                  {"0::/pod" + uid + "/x\n", ""},
		"static pod":                                     {"0::/kubepods/burstable/pod0c6b3e4f8a0b4d0e9c1d2f3a4b5c6d7e/" + container + "\n", "0c6b3e4f8a0b4d0e9c1d2f3a4b5c6d7e"},
		"only the first hierarchy":                       {"2:cpu:/\n1:name=systemd:/kubepods/pod" + uid + "/x\n", uid},
		"no pod":                                         {"0::/system.slice/sshd.service\n", ""},
		"podman":                                         {"0::/machine.slice/libpod-" + container + ".scope\n", ""},
		"a pod's name elsewhere":                         {"0::/user.slice/pod" + uid + "/x\n", ""},
		"nothing":                                        {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			procfs := t.TempDir()
			if err := os.Mkdir(filepath.Join(procfs, "77"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(procfs, "77", "cgroup"), []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := PodUID(procfs, 77); err != nil || got != tc.want {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
			if _, err := PodUID(procfs, 78); err == nil {
				t.Error("an exited process has a pod")
			}
		})
	}
}

func FuzzCgroup(f *testing.F) {
	f.Add("0::/kubepods/burstable/pod0c6b3e4f-8a0b-4d0e-9c1d-2f3a4b5c6d7e/x\n")
	f.Fuzz(func(t *testing.T, text string) {
		if uid := podUIDOf(text); uid != "" && len(uid) != 36 && len(uid) != 32 {
			t.Errorf("%q is not a UID", uid)
		}
	})
}

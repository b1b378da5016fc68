package trial

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestFits(t *testing.T) {
	const label = "nvidia.com/gpu.product"
	selector := func(key, value string) corev1.PodSpec {
		return corev1.PodSpec{NodeSelector: map[string]string{key: value}}
	}
	affinity := func(terms ...corev1.NodeSelectorRequirement) corev1.PodSpec {
		required := &corev1.NodeSelector{}
		for _, e := range terms {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{e}})
		}
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}}
	}
	in := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"no selector":                    {corev1.PodSpec{}, true},
		"other key":                      {selector("zone", "a"), true},
		"the model":                      {selector(label, "NVIDIA-L4"), true},
		"another model":                  {selector(label, "NVIDIA-H100"), false},
		"a node":                         {corev1.PodSpec{NodeName: "n1"}, false},
		"affinity to other keys":         {affinity(in("zone", "a")), true},
		"affinity to the model":          {affinity(in(label, "NVIDIA-H100", "NVIDIA-L4")), true},
		"affinity to another model":      {affinity(in(label, "NVIDIA-H100")), false},
		"one of two terms has the model": {affinity(in(label, "NVIDIA-H100"), in(label, "NVIDIA-L4")), true},
		"affinity excludes the model":    {affinity(corev1.NodeSelectorRequirement{Key: label, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"NVIDIA-L4"}}), false},
		"affinity to nodes without it":   {affinity(corev1.NodeSelectorRequirement{Key: label, Operator: corev1.NodeSelectorOpDoesNotExist}), false},
		"affinity to pods":               {corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}}, true},
		"preferred affinity":             {corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}}}}, true},
		"affinity to any model":          {affinity(corev1.NodeSelectorRequirement{Key: label, Operator: corev1.NodeSelectorOpExists}), true},
	} {
		if got := Fits(&tc.spec, l4); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Two copies run at the same time, and the job starts when they end.
func TestSharedState(t *testing.T) {
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
	readOnlyClaim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: true}}
	hostPath := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}
	nfs := corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Path: "/data"}}
	pod := func(v corev1.VolumeSource, c corev1.Container) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: v}}, Containers: []corev1.Container{c}}
	}
	writes := corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "data"}}}
	reads := corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "data", ReadOnly: true}}}
	initWrites := pod(claim, reads)
	initWrites.InitContainers = []corev1.Container{writes}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"no volumes":              {corev1.PodSpec{}, ""},
		"claim":                   {pod(claim, writes), "copies would write to the volume data"},
		"claim, read only":        {pod(claim, reads), ""},
		"claim of the volume":     {pod(readOnlyClaim, writes), ""},
		"claim as a block device": {pod(claim, corev1.Container{VolumeDevices: []corev1.VolumeDevice{{Name: "data"}}}), "write to the volume data"},
		"claim in the init only":  {initWrites, "write to the volume data"},
		"folder of the node":      {pod(hostPath, writes), "write to the volume data"},
		"share":                   {pod(nfs, writes), "write to the volume data"},
		"folder of the pod":       {pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, writes), ""},
		"claim of the pod":        {pod(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}, writes), ""},
		"configuration":           {pod(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, writes), ""},
		"secret":                  {pod(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, writes), ""},
		"fields of the pod":       {pod(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}, writes), ""},
		"token":                   {pod(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}, writes), ""},
		"image":                   {pod(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}, writes), ""},
		"claim, read only, beside a volume that is written": {pod(claim, corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "data", ReadOnly: true}, {Name: "scratch"}}}), ""},
		"ResourceClaim":              {corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("shared")}}}, "share the ResourceClaim shared"},
		"template of ResourceClaims": {corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("own")}}}, ""},
	} {
		got := SharedState(&tc.spec)
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

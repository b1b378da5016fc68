package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Prefixes of the names of JobProfiles that are hashes.
const (
	hashPrefix  = "hash-"
	labelPrefix = "label-"
)

// hashLength is the number of bytes of a hash in a name: within one namespace, 64 bits do
// not collide by chance.
const hashLength = 8

// Key identifies the profile of a job within its namespace.
type Key struct {
	// Name of the JobProfile.
	Name   string
	Source v1alpha1.ProfileKeySource
	// Label is the value of the label. Empty if Source is Hash.
	Label string
}

// KeyOf returns the key of a workload: the label plimsoll.dev/profile of the Workload or of
// its pods, otherwise a hash of what the pods run. The Workload must be complete: without
// commands, jobs of one image would share a profile.
func KeyOf(wl *kueue.Workload) Key {
	label := labelOf(wl)
	switch {
	case label == "":
		return Key{Name: hashPrefix + hashOf(containersOf(wl)), Source: v1alpha1.ProfileFromHash}
	case len(validation.IsDNS1123Label(label)) > 0 || strings.HasPrefix(label, hashPrefix) || strings.HasPrefix(label, labelPrefix):
		// The value can't be a name, or could be the name of another key.
		return Key{Name: labelPrefix + hashOf(label), Source: v1alpha1.ProfileFromLabel, Label: label}
	default:
		return Key{Name: label, Source: v1alpha1.ProfileFromLabel, Label: label}
	}
}

// recordedAnnotation holds the name of the profile on Workloads in the operator's cache, which do
// not have what their containers run. It is never written to the API server.
const recordedAnnotation = "plimsoll.dev/cached-profile"

// RecordName adds the name of the Workload's profile to a complete Workload that is about to be
// trimmed for the cache.
func RecordName(wl *kueue.Workload) {
	if wl.Annotations == nil {
		wl.Annotations = map[string]string{}
	}
	wl.Annotations[recordedAnnotation] = KeyOf(wl).Name
}

// RecordedName returns the name of the profile of a Workload from the cache.
func RecordedName(wl *kueue.Workload) string { return wl.Annotations[recordedAnnotation] }

// labelOf returns the label of the Workload, otherwise the one of its first pod set that has
// it.
func labelOf(wl *kueue.Workload) string {
	label := wl.Labels[v1alpha1.ProfileLabel]
	for i := range wl.Spec.PodSets {
		if label == "" {
			label = wl.Spec.PodSets[i].Template.Labels[v1alpha1.ProfileLabel]
		}
	}
	return label
}

// containerKey is what distinguishes a container from those of other jobs.
type containerKey struct {
	PodSet        string
	Init          bool
	Image         string
	Command, Args []string
	Devices       map[string]string
}

// containersOf returns the keys of all containers. The order of the pod sets and containers
// is part of a job.
func containersOf(wl *kueue.Workload) []containerKey {
	var keys []containerKey
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		for _, list := range []struct {
			init       bool
			containers []corev1.Container
		}{{true, set.Template.Spec.InitContainers}, {false, set.Template.Spec.Containers}} {
			for j := range list.containers {
				c := &list.containers[j]
				keys = append(keys, containerKey{PodSet: string(set.Name), Init: list.init, Image: c.Image, Command: c.Command, Args: c.Args, Devices: devicesOf(c)})
			}
		}
	}
	return keys
}

// devicesOf returns the extended resources of a container, which have a domain in their name,
// and the names of its resource claims.
func devicesOf(c *corev1.Container) map[string]string {
	devices := map[string]string{}
	for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if strings.Contains(string(name), "/") {
				quantity := list[name]
				devices[string(name)] = quantity.String()
			}
		}
	}
	for _, claim := range c.Resources.Claims {
		devices["claim "+claim.Name] = claim.Request
	}
	return devices
}

// hashOf returns the hash of the JSON form of v, which separates its fields unambiguously.
func hashOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, slices and maps of strings have a JSON form
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:hashLength])
}

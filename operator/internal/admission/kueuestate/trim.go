package kueuestate

import (
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// lastAppliedAnnotation holds a whole manifest if a client used kubectl apply.
const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// Trim removes the parts of a workload that no decision uses: managedFields, and what the
// containers of the pod templates run. What remains is what the pods request, where they may run,
// and the objects that they refer to. The operator caches every workload of the hub, and these parts are most of their size.
func Trim(wl *kueue.Workload) {
	wl.ManagedFields = nil
	delete(wl.Annotations, lastAppliedAnnotation)
	for i := range wl.Spec.PodSets {
		template := &wl.Spec.PodSets[i].Template
		template.ManagedFields = nil
		delete(template.Annotations, lastAppliedAnnotation)
		template.Spec.EphemeralContainers = nil
		trimContainers(template.Spec.Containers)
		trimContainers(template.Spec.InitContainers)
	}
}

// trimContainers keeps the name, the image, the resources, the restart policy, and the environment
// from ConfigMaps and Secrets.
func trimContainers(containers []corev1.Container) {
	for i := range containers {
		c := &containers[i]
		containers[i] = corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy,
			EnvFrom: c.EnvFrom, Env: variablesOfObjects(c.Env)}
	}
}

// variablesOfObjects returns the environment variables with a value from a ConfigMap or Secret.
func variablesOfObjects(all []corev1.EnvVar) []corev1.EnvVar {
	var kept []corev1.EnvVar
	for _, env := range all {
		if from := env.ValueFrom; from != nil && (from.ConfigMapKeyRef != nil || from.SecretKeyRef != nil) {
			kept = append(kept, env)
		}
	}
	return kept
}

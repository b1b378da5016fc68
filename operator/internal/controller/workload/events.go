package workload

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// concernsGate selects the events of workloads that hold quota, held it before the event, have a
// record of the gate, or a Ready check, which may be outdated. Most workloads of a hub wait for quota, and Kueue updates each of them
// whenever it looks at the queue.
var concernsGate = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return mayNeedStep(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool { return mayNeedStep(e.ObjectOld) || mayNeedStep(e.ObjectNew) },
}

func mayNeedStep(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return !ok || kueuestate.HoldsQuota(wl) || wl.Annotations[v1alpha1.DispatchAnnotation] != "" ||
		!kueuestate.IsFinished(wl) && slices.ContainsFunc(wl.Status.AdmissionChecks, isReady)
}

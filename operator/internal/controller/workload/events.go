package workload

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// concernsGate selects the events of workloads that may need a step, or did before the event.
var concernsGate = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return mayNeedStep(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool { return mayNeedStep(e.ObjectOld) || mayNeedStep(e.ObjectNew) },
}

func mayNeedStep(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return !ok || lifecycle.MayNeedStep(wl)
}

package whatif

import (
	"cmp"
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/hubstate"
)

// priorityLabel names the WorkloadPriorityClass of a job.
const priorityLabel = "kueue.x-k8s.io/priority-class"

// priorityClassOf is the class from which Kueue takes the priority of a job: that of its label, or else that of the first
// pods that have one. nil = the default class of pods.
func priorityClassOf(manifest *unstructured.Unstructured, podSets []kueue.PodSet) *kueue.PriorityClassRef {
	if name := manifest.GetLabels()[priorityLabel]; name != "" {
		return kueue.NewWorkloadPriorityClassRef(name)
	}
	for _, p := range podSets {
		if name := p.Template.Spec.PriorityClassName; name != "" {
			return kueue.NewPodPriorityClassRef(name)
		}
	}
	return nil
}

// priorityOf is the priority that Kueue gives a job.
func (f *Fleet) priorityOf(ctx context.Context, wl *kueue.Workload, answer *Answer) (int32, error) {
	switch ref := wl.Spec.PriorityClassRef; {
	case wl.Spec.Priority != nil:
		return *wl.Spec.Priority, nil
	case ref == nil:
		return f.defaultPriority(ctx)
	case !f.hasHub:
		answer.Assumed = append(answer.Assumed, fmt.Sprintf("%s %s is 0: no hub says its value", ref.Kind, ref.Name))
		return 0, nil
	case ref.Kind == kueue.WorkloadPriorityClassKind:
		class := &kueue.WorkloadPriorityClass{}
		err := f.readClass(ctx, ref, class)
		return class.Value, err
	default:
		class := &schedulingv1.PriorityClass{}
		err := f.readClass(ctx, ref, class)
		return class.Value, err
	}
}

func (f *Fleet) readClass(ctx context.Context, ref *kueue.PriorityClassRef, class client.Object) error {
	found, err := hubstate.Find(ctx, f.hub, client.ObjectKey{Name: ref.Name}, class)
	if err == nil && !found {
		err = fmt.Errorf("%s %s does not exist on the hub", ref.Kind, ref.Name)
	}
	return err
}

// defaultPriority is that of jobs without a class.
func (f *Fleet) defaultPriority(ctx context.Context) (int32, error) {
	classes := &schedulingv1.PriorityClassList{}
	if err := f.hub.List(ctx, classes); err != nil {
		return 0, err
	}
	var lowest *schedulingv1.PriorityClass // of several defaults, Kubernetes takes the one with the lowest value
	for i := range classes.Items {
		if c := &classes.Items[i]; c.GlobalDefault && (lowest == nil || c.Value < lowest.Value) {
			lowest = c
		}
	}
	return cmp.Or(lowest, &schedulingv1.PriorityClass{}).Value, nil
}

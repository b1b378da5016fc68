package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

var resourceSlices = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}

// resourceSlice has the fields of a ResourceSlice that the exporter uses. The types of
// k8s.io/api would add a package of some MB to the program.
type resourceSlice struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Driver string `json:"driver"`
		Pool   struct {
			Name               string `json:"name"`
			Generation         int64  `json:"generation"`
			ResourceSliceCount int64  `json:"resourceSliceCount"`
		} `json:"pool"`
		Devices []sliceDevice `json:"devices"`
	} `json:"spec"`
}

type sliceDevice struct {
	Name                     string                    `json:"name"`
	AllowMultipleAllocations bool                      `json:"allowMultipleAllocations"`
	Taints                   []deviceTaint             `json:"taints"`
	Capacity                 map[string]deviceCapacity `json:"capacity"`
}

type deviceTaint struct {
	Effect string `json:"effect"`
}

type deviceCapacity struct {
	Value         resource.Quantity `json:"value"`
	RequestPolicy *requestPolicy    `json:"requestPolicy"`
}

type requestPolicy struct {
	Default     *resource.Quantity  `json:"default"`
	ValidValues []resource.Quantity `json:"validValues"`
	ValidRange  *struct {
		Min  *resource.Quantity `json:"min"`
		Max  *resource.Quantity `json:"max"`
		Step *resource.Quantity `json:"step"`
	} `json:"validRange"`
}

// sliceWatcher watches the ResourceSlices of a node. While the API server is unreachable it keeps
// the last known ones.
type sliceWatcher struct {
	client    dynamic.Interface
	informer  cache.SharedIndexInformer
	node      fields.Selector
	reachable atomic.Bool
	failing   atomic.Bool // a failure was logged
	log       *slog.Logger
}

func newSliceWatcher(client dynamic.Interface, node string, log *slog.Logger) (*sliceWatcher, error) {
	w := &sliceWatcher{client: client, node: fields.OneTermEqualSelector("spec.nodeName", node), log: log}
	w.informer = cache.NewSharedIndexInformer(&cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	ignore := func(context.Context, *cache.Reflector, error) {} // recordReachable logs failures
	return w, errors.Join(w.informer.SetTransform(w.decode), w.informer.SetWatchErrorHandlerWithContext(ignore))
}

func (w *sliceWatcher) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.FieldSelector = w.node.String()
	l, err := w.client.Resource(resourceSlices).List(ctx, o)
	w.recordReachable(err)
	return l, err
}

func (w *sliceWatcher) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.FieldSelector = w.node.String()
	i, err := w.client.Resource(resourceSlices).Watch(ctx, o)
	w.recordReachable(err)
	return i, err
}

// recordReachable records the result of a request, and logs when requests start to fail and when
// they succeed again.
func (w *sliceWatcher) recordReachable(err error) {
	w.reachable.Store(err == nil)
	switch wasFailing := w.failing.Swap(err != nil); {
	case err != nil && !wasFailing:
		w.log.Warn("cannot list or watch the node's ResourceSlices; keeping the last known ones. Without any, devices have no shares of claims (plimsoll_exporter_resource_slices_reachable)", "err", err)
	case err == nil && wasFailing:
		w.log.Info("the node's ResourceSlices can be listed again")
	}
}

// decode converts a ResourceSlice to the fields that the exporter uses. A slice that it cannot
// read stays as one without devices, so that its pool is incomplete.
func (w *sliceWatcher) decode(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	slice := &resourceSlice{}
	if err := decodeObject(u, slice); err != nil {
		w.log.Warn("cannot read a ResourceSlice; its devices have no shares of claims", "resourceslice", u.GetName(), "err", err)
		return &resourceSlice{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), ResourceVersion: u.GetResourceVersion()}}, nil
	}
	slice.ManagedFields = nil
	return slice, nil
}

// decodeObject converts an object to a struct with the fields of its JSON.
func decodeObject(u *unstructured.Unstructured, to any) error {
	text, err := json.Marshal(u.Object)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return json.Unmarshal(text, to)
}

// devices returns the devices that several claims can allocate, of the pools that are complete.
// ok is false before the first list.
func (w *sliceWatcher) devices() (shared []podmap.SharedDevice, ok bool) {
	if !w.informer.HasSynced() {
		return nil, false
	}
	var all []*resourceSlice
	for _, object := range w.informer.GetStore().List() {
		all = append(all, object.(*resourceSlice))
	}
	return sharedDevices(all), true
}

// CountSharedDevices counts the devices of a node that several claims can allocate. It requires the
// permission list on resourceslices.
func CountSharedDevices(ctx context.Context, config *rest.Config, node string) (int, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return 0, fmt.Errorf("create a client for the API server: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	l, err := client.Resource(resourceSlices).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return 0, fmt.Errorf("list the node's ResourceSlices: %w", err)
	}
	var all []*resourceSlice
	for i := range l.Items {
		slice := &resourceSlice{}
		if err := decodeObject(&l.Items[i], slice); err != nil {
			return 0, fmt.Errorf("ResourceSlice %s: %w", l.Items[i].GetName(), err)
		}
		all = append(all, slice)
	}
	return len(sharedDevices(all)), nil
}

// pool identifies a pool of devices.
type pool struct{ driver, name string }

// sharedDevices returns the devices that several claims can allocate. As in kube-scheduler, only the
// slices of a pool's last generation count, and only if the pool has all of them and each device
// once. A device with a taint is left out: claims rarely tolerate it.
func sharedDevices(all []*resourceSlice) (shared []podmap.SharedDevice) {
	last := map[pool][]*resourceSlice{}
	for _, s := range all {
		p := pool{s.Spec.Driver, s.Spec.Pool.Name}
		switch old := last[p]; {
		case old == nil || s.Spec.Pool.Generation > old[0].Spec.Pool.Generation:
			last[p] = []*resourceSlice{s}
		case s.Spec.Pool.Generation == old[0].Spec.Pool.Generation:
			last[p] = append(old, s)
		}
	}
	for p, parts := range last {
		if int64(len(parts)) != parts[0].Spec.Pool.ResourceSliceCount || hasDuplicates(parts) {
			continue
		}
		for _, s := range parts {
			for i := range s.Spec.Devices {
				if d := &s.Spec.Devices[i]; d.AllowMultipleAllocations && !slices.ContainsFunc(d.Taints, deviceTaint.preventsAllocation) {
					shared = append(shared, podmap.SharedDevice{Driver: p.driver, Pool: p.name, Device: d.Name, Capacities: capacities(p.driver, d.Capacity)})
				}
			}
		}
	}
	slices.SortFunc(shared, func(a, b podmap.SharedDevice) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Device, b.Device))
	})
	return shared
}

// preventsAllocation reports whether kube-scheduler allocates the device only to claims that tolerate
// the taint. A taint with another effect only informs.
func (t deviceTaint) preventsAllocation() bool {
	return t.Effect == "NoSchedule" || t.Effect == "NoExecute"
}

func hasDuplicates(parts []*resourceSlice) bool {
	seen := map[string]bool{}
	for _, s := range parts {
		for i := range s.Spec.Devices {
			if seen[s.Spec.Devices[i].Name] {
				return true
			}
			seen[s.Spec.Devices[i].Name] = true
		}
	}
	return false
}

// capacities returns the capacities of a device. One with a negative amount is left out: nothing of
// it can be requested.
func capacities(driver string, of map[string]deviceCapacity) map[string]podmap.DeviceCapacity {
	all := map[string]podmap.DeviceCapacity{}
	for name, c := range of {
		value := c.Value.AsApproximateFloat64()
		out := podmap.DeviceCapacity{Value: value, Default: value, Max: value, Step: 1}
		if p := c.RequestPolicy; p != nil {
			applyPolicy(&out, p)
		}
		if amounts := append([]float64{out.Value, out.Default, out.Min, out.Max, out.Step}, out.Values...); isPlausible(amounts...) && out.Step > 0 {
			all[podmap.CapacityName(driver, name)] = out
		}
	}
	return all
}

// isPlausible reports whether all amounts are finite and not negative.
func isPlausible(amounts ...float64) bool {
	return !slices.ContainsFunc(amounts, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 })
}

// applyPolicy takes over how kube-scheduler rounds requests. It computes a step in whole units.
func applyPolicy(c *podmap.DeviceCapacity, p *requestPolicy) {
	if p.Default != nil {
		c.Default = p.Default.AsApproximateFloat64()
	}
	switch r := p.ValidRange; {
	case r != nil:
		if r.Min != nil {
			c.Min = r.Min.AsApproximateFloat64()
		}
		if r.Max != nil {
			c.Max = r.Max.AsApproximateFloat64()
		}
		if r.Step != nil {
			c.Min, c.Step = math.Ceil(c.Min), math.Ceil(r.Step.AsApproximateFloat64())
		}
	case len(p.ValidValues) > 0:
		for i := range p.ValidValues {
			c.Values = append(c.Values, p.ValidValues[i].AsApproximateFloat64())
		}
		slices.Sort(c.Values)
	}
}

package gatestate

import (
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

func TestDevicesOfFlavor(t *testing.T) {
	const label = "nvidia.com/gpu.product"
	podSet := func(model string, flavorLabels map[string]string) shape.PodSet {
		return shape.PodSet{Resource: "nvidia.com/gpu", Model: model, Flavor: "gpu", DevicesPerPod: 8, Pods: 1, FlavorLabels: flavorLabels}
	}
	cluster := func(devices gate.Number, sampled bool) gate.Candidate {
		c := gate.Candidate{Shapes: []gate.ShapeMetrics{{Capacity: devices}}}
		if sampled {
			c.SampledAt = noon
		}
		return c
	}
	ofModel := podSet("H100", map[string]string{label: "H100"})
	share := podSet("", nil)
	share.Share = &shape.Share{}
	four, eight, none := cluster(gate.Known(4), true), cluster(gate.Known(8), true), cluster(gate.Number{}, true)
	unsampled := cluster(gate.Number{}, false)
	type decision struct {
		podSet   shape.PodSet
		clusters []gate.Candidate
	}
	for _, tc := range []struct {
		name      string
		decisions []decision
		want      Devices
		measured  bool
	}{
		{"no decision", nil, Devices{}, false},
		{"model of the flavor", []decision{{ofModel, []gate.Candidate{four, eight, none}}}, Devices{12, true}, true},
		{"any model", []decision{{podSet("", nil), []gate.Candidate{four, eight}}}, Devices{12, true}, true},
		{"the latest counts", []decision{{ofModel, []gate.Candidate{four, eight}}, {ofModel, []gate.Candidate{four}}}, Devices{4, true}, true},
		{"models that pods name may not be all", []decision{{podSet("H100", nil), []gate.Candidate{four}}, {podSet("A100", nil), []gate.Candidate{eight}}}, Devices{12, false}, true},
		{"any model after a model", []decision{{podSet("H100", nil), []gate.Candidate{four}}, {podSet("", nil), []gate.Candidate{eight}}}, Devices{8, true}, true},
		{"a cluster without samples", []decision{{ofModel, []gate.Candidate{four, unsampled}}}, Devices{4, false}, true},
		{"a cluster that lost its samples", []decision{{ofModel, []gate.Candidate{four, eight}}, {ofModel, []gate.Candidate{four, unsampled}}}, Devices{12, true}, true},
		{"no clusters", []decision{{ofModel, nil}}, Devices{0, false}, true},
		{"a model that no cluster has", []decision{{podSet("none", nil), []gate.Candidate{none}}}, Devices{}, false},
		{"parts of devices", []decision{{share, []gate.Candidate{four}}}, Devices{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := New()
			r.Put(Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{ModelFrom: []string{label}}})
			for _, d := range tc.decisions {
				r.SetDevices("gpu", shape.Facts{ClusterQueue: "q", PodSets: []shape.PodSet{d.podSet}}, d.clusters)
			}
			of := FlavorDevices{ClusterQueue: "q", Flavor: "gpu", Resource: "nvidia.com/gpu"}
			if got, measured := r.DevicesOf("gpu", of); got != tc.want || measured != tc.measured {
				t.Errorf("got %+v, %t, want %+v, %t", got, measured, tc.want, tc.measured)
			}
			if r.Delete("gpu"); len(r.devices) > 0 {
				t.Error("devices of a deleted gate")
			}
		})
	}
}

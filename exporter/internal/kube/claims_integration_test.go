//go:build integration

package kube

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// publishDevice creates a ResourceSlice of a node with a device that claims share.
func publishDevice(t *testing.T, c client.Client, node string) {
	t.Helper()
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{Driver: podmap.NVIDIADriver, NodeName: ptr.To(node),
		Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-0", AllowMultipleAllocations: ptr.To(true),
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi"), RequestPolicy: &resourcev1.CapacityRequestPolicy{
				Default: ptr.To(resource.MustParse("2Gi")), ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("1Gi")), Step: ptr.To(resource.MustParse("512Mi"))}}}}}}}}
	if err := c.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
}

// The test runs with the RBAC of config/exporter/claim-shares on a real API server. The reader knows
// the devices of its node, and claims by their names. It may not list claims.
func TestClaimReaderOnAnAPIServer(t *testing.T) {
	config, admin := startAPIServer(t)
	grant(t, admin, "claim-shares")
	publishDevice(t, admin, "node-1")
	publishDevice(t, admin, "node-2")
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "half"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}}}}
	if err := admin.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	const share = "3a5e5a1c-0f3b-4a8e-9c6d-2b7f1d8e9a00"
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: podmap.NVIDIADriver, Pool: "node-1", Device: "gpu-0", ShareID: ptr.To(types.UID(share)), ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse("3Gi")}}}}}
	if err := admin.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	account := rest.CopyConfig(config)
	account.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:plimsoll-exporter:plimsoll-exporter", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	r, err := NewClaimReader(account, "node-1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	defer func() { stop(); <-ended }()
	if !r.WaitForList(ctx) {
		t.Fatal("the slices are not listed")
	}
	const gib = 1 << 30
	devices, _ := r.Devices()
	want := []podmap.SharedDevice{{Driver: podmap.NVIDIADriver, Pool: "node-1", Device: "gpu-0", Capacities: map[string]podmap.DeviceCapacity{"memory": {Value: 80 * gib, Default: 2 * gib, Min: gib, Max: 80 * gib, Step: gib / 2}}}}
	if diff := cmp.Diff(want, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	held := podmap.Claim{Name: "half", Namespace: "default", Driver: podmap.NVIDIADriver, Pool: "node-1", Device: "gpu-0", ShareID: share}
	await(t, r, map[podmap.Claim]podmap.Consumption{held: {Amounts: map[string]float64{"memory": 3 * gib}}})
	unprivileged, err := dynamic.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unprivileged.Resource(resourceClaims).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("claims can be listed: %v", err)
	}
}

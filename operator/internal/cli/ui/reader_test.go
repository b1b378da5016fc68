package ui

import (
	"context"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// pagingHub has workloads, and returns as many as asked for.
type pagingHub struct {
	client.Reader
	workloads int
}

// List implements client.Reader.
func (h pagingHub) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(opts)
	begin, _ := strconv.Atoi(options.Continue)
	end := h.workloads
	if options.Limit > 0 {
		end = min(end, begin+int(options.Limit))
	}
	workloads := list.(*kueue.WorkloadList)
	for i := begin; i < end; i++ {
		wl := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kueue"}}}}
		workloads.Items = append(workloads.Items, wl)
	}
	if end < h.workloads {
		workloads.Continue = strconv.Itoa(end)
	}
	if len(workloads.Items) > 500 {
		workloads.Items = nil // too many for one response
	}
	return nil
}

// Lists are read in parts, and each part is trimmed.
func TestReaderListsInParts(t *testing.T) {
	s := snapshots{refresh: time.Hour, now: time.Now, byUser: map[user]*snapshot{}}
	snapshot, _ := s.of(userOf(""))
	all := &kueue.WorkloadList{}
	if err := (reader{hub: pagingHub{workloads: 1234}, snapshot: snapshot}).List(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if len(all.Items) != 1234 || all.Items[1233].Name != "1233" {
		t.Fatalf("%d workloads", len(all.Items))
	}
	if len(all.Items[1233].ManagedFields) != 0 {
		t.Error("a workload is not trimmed")
	}
}

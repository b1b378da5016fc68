package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

// shadowJobs is the number of jobs that pass a gate in mode Shadow.
const shadowJobs = 100

// shadow lets jobs pass the gate in mode Shadow while the nodes of cluster1 have devices and no CPU. Those that hang there
// are deleted, as their users would, and the report says where they would have gone.
func shadow(s *script) string {
	story.Must((&labStage{s.ctx, s.stage}).SetCPUTaken("cluster1", story.H100, true))
	s.patchesGate(`{"mode":"Shadow"}`, `{"mode":"Enforce"}`)
	s.gateReport(0)
	s.log("the nodes of cluster1 have free GPUs and no CPU; the gate is in mode Shadow; %d jobs of 4 CPU arrive", shadowJobs)
	for i := range shadowJobs {
		s.submits(fleet.Job{Name: fmt.Sprintf("shadow-%03d", i), Model: fleet.H100, GPUs: 1, Duration: 5 * time.Second})
	}
	stuck := s.stuckJobs()
	s.log("%d jobs hang on cluster1, and the others are done; their users delete them", len(stuck))
	for _, job := range stuck {
		s.deletes(job)
	}
	report := s.gateReport(shadowJobs)
	s.prints("report", "gate", "gpu")
	story.Must(checkShadowReport(report, min(len(stuck), shadowJobs)))
	return fmt.Sprintf("of %d jobs, %d hung on cluster1, and the gate would have sent none of them there", shadowJobs, len(stuck))
}

// checkShadowReport checks that the report names the jobs that hung on cluster1, and for each of them another cluster to
// which the gate would have sent it.
func checkShadowReport(report *v1alpha1.GateShadow, hung int) error {
	named := 0
	for _, row := range report.Workloads {
		switch {
		case row.Cluster != "cluster1":
			continue
		case row.Outcome == v1alpha1.OutcomeSameCluster || row.Would == "cluster1":
			return fmt.Errorf("the gate would have sent %s to cluster1", row.Workload)
		case row.Would == "":
			return fmt.Errorf("the report does not say where %s would have gone: %s", row.Workload, row.Outcome)
		}
		named++
	}
	if named < hung {
		return fmt.Errorf("the report names %d of %d jobs that hung on cluster1", named, hung)
	}
	return nil
}

// stuckJobs waits until each job has finished or hangs on cluster1, and returns the latter.
func (s *script) stuckJobs() (stuck []string) {
	s.await("all jobs to finish that do not hang on cluster1", func(ctx context.Context) error {
		list := &kueue.WorkloadList{}
		if err := s.fleet.Hub.Client.List(ctx, list, client.InNamespace(fleet.Namespace)); err != nil {
			return err
		}
		stuck = nil
		var open []string
		for i := range list.Items {
			wl := &list.Items[i]
			job := ""
			for _, owner := range wl.OwnerReferences {
				job = owner.Name
			}
			switch {
			case !strings.HasPrefix(job, "shadow-"):
			case ptr.Deref(wl.Status.ClusterName, "") == "cluster1":
				stuck = append(stuck, job)
			case !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished):
				open = append(open, job)
			}
		}
		switch {
		case len(open) > 0:
			return fmt.Errorf("%d run or wait, such as %s", len(open), open[0])
		case len(stuck) == 0:
			return errors.New("no job hangs on cluster1")
		}
		return nil
	})
	return stuck
}

// gateReport waits until the report of the gate has a number of workloads.
func (s *script) gateReport(workloads int64) (report *v1alpha1.GateShadow) {
	s.await(fmt.Sprintf("the report of the gate to have %d workloads", workloads), func(ctx context.Context) error {
		g := &v1alpha1.PlacementGate{}
		if err := s.fleet.Hub.Client.Get(ctx, client.ObjectKey{Name: "gpu"}, g); err != nil {
			return err
		}
		if report = g.Status.Shadow; report == nil || report.Generation != g.Generation {
			return errors.New("there is no report yet")
		}
		n := int64(0)
		for _, o := range report.Outcomes {
			n += o.Workloads
		}
		if n < workloads {
			return fmt.Errorf("it has %d: %+v", n, report.Outcomes)
		}
		return nil
	})
	return report
}

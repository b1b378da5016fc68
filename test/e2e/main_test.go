//go:build e2e

// Package e2e tests what users see on a fleet of real components.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/test/lab/audit"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

var lab *fleet.Fleet

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetLogger(logr.Discard()) // client-go logs lost watches
	dir, err := os.MkdirTemp("", "plm")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Minute)
	defer cancel()
	if lab, err = fleet.Up(ctx, fleet.Options{Dir: dir, Audit: true}); err == nil {
		err = errors.Join(lab.Install(ctx), shortenPeriods(ctx), lab.StartExporters(ctx))
	}
	if err == nil {
		err = lab.StartOperator(ctx)
	}
	if lab != nil {
		defer lab.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the fleet:", err)
		return 1
	}
	code := m.Run()
	if err := checkAudit(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "logs of all components: %s/logs\n", dir)
		return code
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 0
}

// shortenPeriods makes the samples react within seconds.
func shortenPeriods(ctx context.Context) error {
	for object, patch := range map[string]string{
		"scoringpolicy/fleet": `{"spec":{"periodSeconds":2,"validForPeriods":15,"freshness":{"maxAgeSeconds":10}}}`,
		"placementgate/gpu":   `{"spec":{"periodSeconds":2,"freshness":{"maxSampleAgeSeconds":20,"unknownAfterSeconds":40},"widen":{"afterSeconds":20}}}`,
	} {
		if _, err := lab.Hub.Kubectl(ctx, "", "patch", object, "--type=merge", "-p", patch); err != nil {
			return err
		}
	}
	return lab.SetHold(ctx, new(int32(30)))
}

// checkAudit reads the hub's audit log of all tests. It fails if the operator made a
// forbidden write, if a role or the guard refused a request of the operator, if a workload
// moved to another cluster without an eviction, or if all tests together used no permission
// or wrote no workload.
func checkAudit() error {
	file, err := os.Open(lab.AuditLog())
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	auditLog, err := audit.Read(file)
	if err != nil {
		return err
	}
	writes, refused := auditLog.Writes[fleet.OperatorUser], auditLog.Refused[fleet.OperatorUser]
	if writes == 0 && !selectsTests() {
		return fmt.Errorf("the audit log %s contains no write of a workload by the operator", lab.AuditLog())
	}
	rules := audit.Rules{User: fleet.OperatorUser, IsGateCheck: isGateCheck, IsTrialCheck: isTrialCheck, IsMultiKueueCheck: isMultiKueueCheck}
	violations := slices.Concat(auditLog.ForbiddenWrites(rules), auditLog.MovedWorkloads(), auditLog.Denied(fleet.OperatorUser))
	fmt.Printf("audit: %d workloads, %d writes of the operator, refused writes by status: %v, %d violations\n",
		auditLog.WorkloadCount(), writes, refused, len(violations))
	if len(violations) > 0 {
		return fmt.Errorf("the audit log contains violations:\n%s", strings.Join(violations, "\n"))
	}
	return checkUnusedPermissions(auditLog)
}

// By convention, the names of the gates' checks begin with "plimsoll", those for trials with "trial",
// and those of other controllers with "other" in all tests. All others are MultiKueue's.
func isGateCheck(check string) bool  { return strings.HasPrefix(check, "plimsoll") }
func isTrialCheck(check string) bool { return strings.HasPrefix(check, "trial") }
func isMultiKueueCheck(check string) bool {
	return !isGateCheck(check) && !isTrialCheck(check) && !strings.HasPrefix(check, "other")
}

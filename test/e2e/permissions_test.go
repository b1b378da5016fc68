//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"plimsoll.dev/plimsoll/test/lab/audit"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// Reasons of unusedPermissions.
const (
	onlyLongTests   = "the tests with the tag long use it"
	onlyRepetition  = "a client sends it for an event that occurs again within minutes, which depends on the time of the tests"
	onlyIntegration = "the integration tests of the controller use it"
	onlyUnit        = "the unit tests of the controller use it"
)

// hasLongTests is true if the tests with the tag long are compiled.
var hasLongTests bool

// unusedPermissions are permissions that a run may leave unused, with the reason.
var unusedPermissions = map[string]string{
	"create coordination.k8s.io/leases":                              onlyLongTests,
	"get coordination.k8s.io/leases":                                 onlyLongTests,
	"update coordination.k8s.io/leases":                              onlyLongTests,
	"create events":                                                  onlyLongTests, // of the leader election
	"list kueue.x-k8s.io/localqueues":                                onlyLongTests, // for workloads that yield
	"watch kueue.x-k8s.io/localqueues":                               onlyLongTests,
	"create kueue.x-k8s.io/cohorts":                                  onlyLongTests, // for quota that is measured
	"list kueue.x-k8s.io/cohorts":                                    onlyLongTests,
	"patch kueue.x-k8s.io/cohorts":                                   onlyLongTests,
	"watch kueue.x-k8s.io/cohorts":                                   onlyLongTests,
	"patch plimsoll.dev/capacitypolicies/status":                     onlyLongTests,
	"create plimsoll.dev/jobprofiles":                                onlyLongTests, // for the section profiles of a gate
	"list plimsoll.dev/jobprofiles":                                  onlyLongTests,
	"watch plimsoll.dev/jobprofiles":                                 onlyLongTests,
	"patch plimsoll.dev/jobprofiles/status":                          onlyLongTests,
	"patch plimsoll.dev/reclaimpolicies/status":                      onlyLongTests,
	"patch plimsoll.dev/trialpolicies/status":                        onlyLongTests,
	"patch kueue.x-k8s.io/multikueueclusters":                        onlyLongTests, // for other credentials
	"patch cluster.open-cluster-management.io/addonplacementscores":  onlyLongTests, // for complete responses after partial ones
	"patch events":                                                   onlyRepetition,
	"patch events.k8s.io/events":                                     onlyRepetition,
	"delete cluster.open-cluster-management.io/addonplacementscores": onlyIntegration,
	"get resource.k8s.io/resourceclaimtemplates":                     onlyUnit, // for a gate that fits shares
	"delete plimsoll.dev/jobprofiles":                                onlyUnit, // above the limit of a namespace
}

// checkUnusedPermissions fails if a role grants what no test used, unless unusedPermissions has
// a reason. In a run with the long tests, onlyLongTests is no reason. It only prints if -run
// selected some of the tests.
func checkUnusedPermissions(auditLog *audit.Log) error {
	rbac := filepath.Join("..", "..", "config", "rbac")
	granted, err := audit.ReadPermissions(filepath.Join(rbac, "role.yaml"), filepath.Join(rbac, "leader_election.yaml"))
	if err != nil {
		return err
	}
	unused := auditLog.Unused(fleet.OperatorUser, granted)
	fmt.Printf("permissions: %d of %d used, unused: %v\n", len(granted)-len(unused), len(granted), unused)
	reasons := maps.Clone(unusedPermissions)
	maps.DeleteFunc(reasons, func(_, reason string) bool { return hasLongTests && reason == onlyLongTests })
	problems := audit.CheckReasons(granted, unused, reasons)
	if len(problems) == 0 || selectsTests() {
		return nil
	}
	return fmt.Errorf("the permissions of the operator and their use differ:\n%s", strings.Join(problems, "\n"))
}

// selectsTests returns true if -run selects some of the tests.
func selectsTests() bool { return flag.Lookup("test.run").Value.String() != "" }

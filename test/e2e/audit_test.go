//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"

	"plimsoll.dev/plimsoll/test/lab/audit"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// audited reads the apiserver's record of all that was written to Workloads
// while the tests ran: it fails on a write that Kueue's state forbids, and on a
// workload that moved without an eviction.
func audited() error {
	file, err := os.Open(lab.AuditLog())
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	log, err := audit.Read(file)
	if err != nil {
		return err
	}
	if log.Writes[fleet.OperatorUser] == 0 {
		return fmt.Errorf("the audit log %s shows no write of the operator", lab.AuditLog())
	}
	bad := append(log.Forbidden(audit.Rules{User: fleet.OperatorUser, Own: ofOurs, MultiKueue: ofMultiKueue}), log.Moves()...)
	fmt.Printf("audit: %d workloads, %d writes of the operator, refused by status: %v, %d forbidden\n",
		log.Workloads(), log.Writes[fleet.OperatorUser], log.Refused[fleet.OperatorUser], len(bad))
	if len(bad) > 0 {
		return fmt.Errorf("writes that Kueue's state forbids:\n%s", strings.Join(bad, "\n"))
	}
	return nil
}

// The tests name their checks so that the audit can tell whose they are.
func ofOurs(check string) bool       { return strings.HasPrefix(check, "plimsoll") }
func ofMultiKueue(check string) bool { return !ofOurs(check) }

//go:build e2e && (long || soak)

package e2e

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// startTwoOperators replaces the operator by operator-a, which leads, and operator-b, with more arguments. It
// returns their names. At the end of the test the operator of the other tests is back.
func startTwoOperators(ctx context.Context, t *testing.T, args ...string) []string {
	t.Helper()
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			return errors.Join(lab.Programs().End("operator-a", syscall.SIGTERM), lab.Programs().End("operator-b", syscall.SIGTERM),
				lab.Programs().Restart(ctx, fleet.Operator))
		})
	})
	if err := lab.Programs().End(fleet.Operator, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	replicas := []string{"operator-a", "operator-b"}
	for _, name := range replicas {
		if err := lab.StartReplica(ctx, name, args...); err != nil {
			t.Fatal(err)
		}
	}
	return replicas
}

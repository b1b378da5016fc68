//go:build !race

package driver

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2" //nolint:depguard // drops its lines
	ctrl "sigs.k8s.io/controller-runtime"
)

// TestMain lets one goroutine run at a time, so that worlds repeat exactly.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // of the leader election
	os.Exit(m.Run())
}

// Package logging builds the loggers of the controllers.
package logging

import (
	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ForRequests returns a constructor of loggers whose lines carry the controller and the key
// of the reconciled object, under the name of its kind. If kind is empty, the controller logs
// the key itself. controller-runtime's own constructor writes the key five times.
func ForRequests(mgr ctrl.Manager, controller, kind string) func(*reconcile.Request) logr.Logger {
	return forRequests(mgr.GetLogger(), controller, kind)
}

func forRequests(logger logr.Logger, controller, kind string) func(*reconcile.Request) logr.Logger {
	logger = logger.WithValues("controller", controller)
	return func(req *reconcile.Request) logr.Logger {
		switch {
		case req == nil || kind == "":
			return logger
		case req.Namespace == "":
			return logger.WithValues(kind, req.Name)
		}
		return logger.WithValues(kind, req.String())
	}
}

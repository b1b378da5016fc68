// Package v1helpers stands in for the package of openshift/library-go, of which OCM's
// placement controller uses one function. The real package does not compile with
// client-go 0.36.
package v1helpers

import "errors"

// NewMultiLineAggregate joins errors with line breaks.
func NewMultiLineAggregate(errs []error) error { return errors.Join(errs...) }

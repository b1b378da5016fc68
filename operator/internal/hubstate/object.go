package hubstate

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Find reads the object with the given key into obj and reports whether it exists. A
// kind that the API server does not serve is an error.
func Find(ctx context.Context, reader client.Reader, key client.ObjectKey, obj client.Object) (bool, error) {
	err := reader.Get(ctx, key, obj)
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err) && namesObject(err):
		return false, nil
	}
	name := key.Name
	if key.Namespace != "" {
		name = key.String()
	}
	return false, fmt.Errorf("get %s %s: %w", reflect.TypeOf(obj).Elem().Name(), name, err)
}

// namesObject distinguishes a missing object from a missing resource: the API server
// returns 404 for both, and only the first names an object.
func namesObject(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}

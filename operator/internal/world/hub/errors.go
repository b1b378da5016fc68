package hub

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	invalid "k8s.io/apimachinery/pkg/util/validation/field"
)

// ErrStopped is the error of requests of a process that has ended.
var ErrStopped = errors.New("the process has ended")

func newNotFound(k *kind, key types.NamespacedName) error {
	return apierrors.NewNotFound(k.resource, key.Name)
}

func newConflict(k *kind, key types.NamespacedName) error {
	return apierrors.NewConflict(k.resource, key.Name,
		errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

// newInvalid is the response to a patch that does not fit the object.
func newInvalid(reason error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", reason.Error(), 0, false)
}

// checkAnnotations refuses an object whose annotations are larger than Kubernetes permits.
func checkAnnotations(k *kind, m *metav1.ObjectMeta) error {
	err := validation.ValidateAnnotationsSize(m.Annotations)
	if err == nil {
		return nil
	}
	return apierrors.NewInvalid(k.gvk.GroupKind(), m.Name, invalid.ErrorList{invalid.TooLong(invalid.NewPath("metadata", "annotations"), "", validation.TotalAnnotationSizeLimitB)})
}

func newBadRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// checkIdentity compares the version and the UID that a request names with the live object. An
// empty one fits each object.
func checkIdentity(k *kind, key types.NamespacedName, live *metav1.ObjectMeta, version string, uid types.UID) error {
	if version != "" && version != live.ResourceVersion {
		return newConflict(k, key)
	}
	if uid != "" && uid != live.UID {
		return apierrors.NewConflict(k.resource, key.Name, fmt.Errorf("the UID in the precondition is %s, that of the object %s", uid, live.UID))
	}
	return nil
}

package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/scoringpolicy"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
)

const (
	reviewTimeout = 10 * time.Second
	allowTTL      = time.Minute
	denyTTL       = 30 * time.Second
)

// authorize is the filter of the metrics listener. The API server authenticates each
// token. It authorizes an explanation if the user may read the explained object, and any
// other path as a non-resource URL.
//
// controller-runtime's own filter knows non-resource URLs only: who may read
// /explain/* could read the explanations of all namespaces.
func authorize(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	tokens, err := authenticationv1.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	access, err := authorizationv1.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	backoff := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	authenticate, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: false}, CacheTTL: allowTTL,
		TokenAccessReviewClient: tokens, TokenAccessReviewTimeout: reviewTimeout, WebhookRetryBackoff: backoff,
	}.New()
	if err != nil {
		return nil, err
	}
	allow, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: access, AllowCacheTTL: allowTTL, DenyCacheTTL: denyTTL, WebhookRetryBackoff: backoff,
	}.New()
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			caller, ok, err := authenticate.AuthenticateRequest(req)
			if err != nil {
				log.Error(err, "Authentication failed")
				http.Error(w, "authentication failed", http.StatusInternalServerError)
				return
			}
			if !ok {
				http.Error(w, "unauthorized", http.StatusUnauthorized)
				return
			}
			decision, _, err := allow.Authorize(req.Context(), attributesOf(caller.User, req))
			if err != nil {
				log.Error(err, "Authorization failed", "user", caller.User.GetName())
				http.Error(w, "authorization failed", http.StatusInternalServerError)
				return
			}
			if decision != authorizer.DecisionAllow {
				http.Error(w, "forbidden", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, req)
		}), nil
	}, nil
}

// attributesOf returns the access that a request requires: that to the explained object,
// or to the path.
func attributesOf(caller user.Info, req *http.Request) authorizer.Attributes {
	a := authorizer.AttributesRecord{User: caller, Verb: strings.ToLower(req.Method), Path: req.URL.Path}
	set := func(group, resource, namespace, name string) authorizer.Attributes {
		a.ResourceRequest, a.APIGroup, a.APIVersion, a.Resource, a.Namespace, a.Name = true, group, "*", resource, namespace, name
		return a
	}
	if object, ok := strings.CutPrefix(req.URL.Path, workload.Prefix); ok {
		namespace, name, _ := strings.Cut(object, "/")
		return set(kueue.SchemeGroupVersion.Group, "workloads", namespace, name)
	}
	if name, ok := strings.CutPrefix(req.URL.Path, scoringpolicy.PolicyPath); ok {
		return set(v1alpha1.GroupVersion.Group, "scoringpolicies", "", name)
	}
	if cluster, ok := strings.CutPrefix(req.URL.Path, scoringpolicy.ClusterPath); ok {
		a.Verb = "list" // the explanation has the cluster's scores by every policy
		return set(clusterv1alpha1.GroupName, "addonplacementscores", cluster, "")
	}
	return a
}

package connect

import (
	"context"
	_ "embed" // the manifests of a worker's account
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
)

// tokenTimeout is the time that Kubernetes has to fill the Secret with a token, and to let
// the token in.
const tokenTimeout = 30 * time.Second

// workerAccess is the user's access to a worker.
type workerAccess struct {
	config    *rest.Config
	client    client.Client
	namespace string // of Kueue
}

// newWorkerAccess connects to the worker with the context of the user's kubeconfig.
func newWorkerAccess(a *command.App, w newWorker, namespace string) (*workerAccess, error) {
	raw, err := a.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, err
	}
	if raw.Contexts[w.context] == nil {
		return nil, fmt.Errorf("the kubeconfig has no context %s; it has %s", w.context, strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "))
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(raw, w.context, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	if config.Insecure {
		return nil, fmt.Errorf("context %s does not verify the certificate of its API server, and Kueue refuses such a connection: set certificate-authority in the kubeconfig", w.context)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: hubclient.Scheme, Mapper: hubclient.RESTMapper})
	return &workerAccess{config: config, client: c, namespace: namespace}, err
}

// isLoopback reports whether the API server has a loopback address.
func (w *workerAccess) isLoopback() bool {
	u, err := url.Parse(w.config.Host)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// createAccount creates the account and returns a kubeconfig for it, after a trial of the
// token. server replaces the URL of the API server in the kubeconfig.
func (w *workerAccess) createAccount(ctx context.Context, server string) ([]byte, error) {
	err := w.client.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "default"}, &corev1.ServiceAccount{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("has no namespace %s: install Kueue there, or set --kueue-namespace", w.namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("read the namespace %s: %w", w.namespace, err)
	}
	for text := range strings.SplitSeq(strings.ReplaceAll(installation.WorkerManifests, "namespace: kueue-system", "namespace: "+w.namespace), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			return nil, err
		}
		if err := applyUnstructured(ctx, w.client, u); err != nil {
			return nil, err
		}
	}
	token, err := w.awaitToken(ctx)
	if err != nil {
		return nil, err
	}
	if server == "" {
		server = w.config.Host
	}
	return w.kubeconfig(server, token)
}

// awaitToken waits until the Secret has a token with which workloads can be listed.
func (w *workerAccess) awaitToken(ctx context.Context) (string, error) {
	token, key := "", client.ObjectKey{Namespace: w.namespace, Name: installation.WorkerAccount}
	last := errors.New("has no token")
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, tokenTimeout, true, func(ctx context.Context) (bool, error) {
		secret := &corev1.Secret{}
		if err := w.client.Get(ctx, key, secret); err != nil {
			return false, err
		}
		if token = string(secret.Data[corev1.ServiceAccountTokenKey]); token == "" {
			return false, nil
		}
		last = w.try(ctx, token)
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		err = last
	}
	if err != nil {
		return "", fmt.Errorf("Secret %s on the worker: %w", key, err)
	}
	return token, nil
}

// try lists a workload with the token.
func (w *workerAccess) try(ctx context.Context, token string) error {
	config := rest.AnonymousClientConfig(w.config)
	config.BearerToken = token
	c, err := client.New(config, client.Options{Scheme: hubclient.Scheme, Mapper: hubclient.RESTMapper})
	if err != nil {
		return err
	}
	return hubclient.Reading("workloads", c.List(ctx, &kueue.WorkloadList{}, client.Limit(1)))
}

// kubeconfig returns a kubeconfig with the token. Kueue accepts only data, not files.
func (w *workerAccess) kubeconfig(server, token string) ([]byte, error) {
	const name = "worker"
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: server, CertificateAuthorityData: w.config.CAData, TLSServerName: w.config.ServerName,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

// applyObject applies an object with its kind set.
func applyObject(ctx context.Context, c client.Client, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	return applyUnstructured(ctx, c, &unstructured.Unstructured{Object: content})
}

func applyUnstructured(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(installation.FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("write %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

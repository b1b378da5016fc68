// Package connect gives Kueue on the hub access to workers: the command connect.
package connect

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
)

// connectOptions are the flags of connect.
type connectOptions struct {
	kueue      string // namespace of Kueue, on the hub and the workers
	secretName string // with {cluster}
	dispatcher string
	overwrite  bool
	dryRun     bool
}

// newWorker is an argument of connect.
type newWorker struct {
	cluster string // name of the ManagedCluster
	context string // in the kubeconfig
	server  string // URL for Kueue on the hub; empty: that of the context
}

// New returns the command connect.
func New(a *command.App) *cobra.Command {
	var o connectOptions
	cmd := &cobra.Command{
		Use:   "connect [CLUSTER=CONTEXT[,SERVER]]...",
		Short: "Give Kueue on the hub access to workers, and set its dispatcher",
		Long: `Give Kueue on the hub access to workers. CLUSTER is the name of a ManagedCluster, and CONTEXT
a context of your kubeconfig for it. SERVER is the URL of its API server for Kueue on the hub,
if it differs from that of the context.

On the worker, connect creates a ServiceAccount with the permissions that MultiKueue needs,
and a token for it, in Kueue's namespace. It tries the token, and writes it as a kubeconfig to
a Secret in Kueue's namespace on the hub. Your own credentials are not stored. The token does not
expire: delete the ServiceAccount on the worker to revoke the access. uninstall --check names what
connect created.

With --dispatcher, connect sets multiKueue.dispatcherName in Kueue's configuration on the hub
and restarts Kueue. The name of the operator is ` + v1alpha1.DispatcherName + `.

connect can run again: it writes the same objects, and restarts Kueue only if Kueue has not
started with the configuration.`,
		Example: `  kubectl plimsoll connect cluster1=admin@cluster1 cluster2=admin@cluster2 --dispatcher=` + v1alpha1.DispatcherName + `
  kubectl plimsoll connect cluster1=kind-cluster1,https://cluster1-control-plane:6443`,
		RunE: func(cmd *cobra.Command, args []string) error {
			workers, err := parseWorkers(args)
			if err != nil {
				return err
			}
			if len(workers) == 0 && o.dispatcher == "" {
				return command.Usagef("expected CLUSTER=CONTEXT or --dispatcher")
			}
			if !strings.Contains(o.secretName, "{cluster}") {
				return command.Usagef("--secret-name must contain {cluster}")
			}
			return connectWorkers(cmd.Context(), a, o, workers)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&o.kueue, "kueue-namespace", "kueue-system", "namespace of Kueue, on the hub and on the workers")
	cmd.Flags().StringVar(&o.secretName, "secret-name", "{cluster}-kubeconfig", "name of the Secrets on the hub, as in multiKueue.credentials.nameTemplate of the gate")
	cmd.Flags().StringVar(&o.dispatcher, "dispatcher", "", "dispatcher to set in Kueue's configuration on the hub")
	cmd.Flags().BoolVar(&o.overwrite, "overwrite", false, "replace Secrets that connect did not write")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only print what would be written")
	return cmd
}

// parseWorkers parses the arguments CLUSTER=CONTEXT[,SERVER].
func parseWorkers(args []string) ([]newWorker, error) {
	var workers []newWorker
	seen := map[string]bool{}
	for _, arg := range args {
		cluster, rest, _ := strings.Cut(arg, "=")
		name, server, hasServer := strings.Cut(rest, ",")
		switch {
		case cluster == "" || name == "" || hasServer && !strings.HasPrefix(server, "https://"):
			return nil, command.Usagef("%q is not CLUSTER=CONTEXT or CLUSTER=CONTEXT,https://HOST:PORT", arg)
		case seen[cluster]:
			return nil, command.Usagef("%s is named twice", cluster)
		}
		seen[cluster] = true
		workers = append(workers, newWorker{cluster: cluster, context: name, server: server})
	}
	return workers, nil
}

// connectWorkers checks all workers on the hub before it writes anything.
func connectWorkers(ctx context.Context, a *command.App, o connectOptions, workers []newWorker) error {
	hub, _, err := hubclient.Connect(a)
	if err != nil {
		return err
	}
	config, err := hubclient.RESTConfig(a)
	if err != nil {
		return err
	}
	var accesses []*workerAccess
	for _, w := range workers {
		access, err := newWorkerAccess(a, w, o.kueue)
		if err != nil {
			return fmt.Errorf("%s: %w", w.cluster, err)
		}
		if access.config.Host == config.Host {
			return fmt.Errorf("%s: context %s is the hub", w.cluster, w.context)
		}
		if err := checkHubFor(ctx, hub, o, w.cluster); err != nil {
			return err
		}
		accesses = append(accesses, access)
	}
	for i, access := range accesses {
		if err := connectWorker(ctx, a, hub, o, workers[i], access); err != nil {
			return fmt.Errorf("%s: %w", workers[i].cluster, err)
		}
	}
	if o.dispatcher == "" {
		return nil
	}
	return applyDispatcher(ctx, a, hub, o)
}

// secretKey returns the name of a worker's Secret on the hub.
func (o connectOptions) secretKey(cluster string) client.ObjectKey {
	return client.ObjectKey{Namespace: o.kueue, Name: strings.ReplaceAll(o.secretName, "{cluster}", cluster)}
}

// checkHubFor returns an error if the ManagedCluster does not exist, or if its Secret exists
// and connect did not write it. The content of the Secret is not read.
func checkHubFor(ctx context.Context, hub client.Client, o connectOptions, cluster string) error {
	err := hub.Get(ctx, client.ObjectKey{Name: cluster}, &clusterv1.ManagedCluster{})
	if apierrors.IsNotFound(err) && !hubclient.NoSuchResource(err) {
		return fmt.Errorf("ManagedCluster %s does not exist: kubectl get managedclusters shows the names", cluster)
	}
	if err != nil {
		return hubclient.Reading("ManagedCluster "+cluster, err)
	}
	secret, key := &metav1.PartialObjectMetadata{}, o.secretKey(cluster)
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	switch err := hub.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("Secret %s: %w", key, err)
	case secret.Labels[installation.ManagedByLabel] != installation.FieldManager && !o.overwrite:
		return fmt.Errorf("Secret %s exists, and connect did not write it: set --overwrite to replace it, or --secret-name", key)
	}
	return nil
}

// connectWorker creates the account on the worker and the Secret on the hub.
func connectWorker(ctx context.Context, a *command.App, hub client.Client, o connectOptions, w newWorker, access *workerAccess) error {
	key := o.secretKey(w.cluster)
	if o.dryRun {
		_, _ = fmt.Fprintf(a.Out, "%s: would create ServiceAccount %s/%s on %s, and Secret %s on the hub\n", w.cluster, o.kueue, installation.WorkerAccount, access.config.Host, key)
		return nil
	}
	kubeconfig, err := access.createAccount(ctx, w.server)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{installation.ManagedByLabel: installation.FieldManager}},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}
	if err := applyObject(ctx, hub, secret); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.Out, "%s: ServiceAccount %s/%s on %s, Secret %s on the hub\n", w.cluster, o.kueue, installation.WorkerAccount, access.config.Host, key)
	if w.server == "" && access.isLoopback() {
		_, _ = fmt.Fprintf(a.ErrOut, "warning: %s: Kueue in a pod can't reach %s: name the address with %s=%s,https://HOST:PORT\n", w.cluster, access.config.Host, w.cluster, w.context)
	}
	return nil
}

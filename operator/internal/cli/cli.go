// Package cli is the kubectl plugin: it shows why, and checks before you apply.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

var scheme = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clusterv1alpha1.Install, kueue.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
}

// errFindings ends a command whose output says all: lint found something.
var errFindings = errors.New("findings")

// Main runs the plugin and returns its exit code: 0, 1 for findings or a failed
// request, 2 for a command line that can't be understood.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRoot(genericclioptions.IOStreams{In: in, Out: out, ErrOut: errOut}, connect)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFindings):
		return 1
	case errors.As(err, &usage):
		fmt.Fprintf(errOut, "error: %v\nSee 'kubectl plimsoll --help'.\n", err)
		return 2
	}
	fmt.Fprintln(errOut, "error:", err)
	return 1
}

type usageError struct{ error }

// connector makes a client and the namespace that the kubeconfig names.
type connector func(*genericclioptions.ConfigFlags) (client.Client, string, error)

func connect(flags *genericclioptions.ConfigFlags) (client.Client, string, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	return c, namespace, err
}

func newRoot(streams genericclioptions.IOStreams, connect connector) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	root := &cobra.Command{
		Use: "kubectl-plimsoll", Short: "Why clusters score as they do, and why workloads go where they go",
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl plimsoll"},
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags.AddFlags(root.PersistentFlags())
	root.AddCommand(newExplain(streams, flags, connect), newTop(streams, flags, connect), newLint(streams))
	return root
}

// exactly n arguments, or a usage error that says what is expected.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("expected %s, got %d arguments", what, len(args))}
		}
		return nil
	}
}

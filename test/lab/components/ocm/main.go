// Command ocm runs the controllers of Open Cluster Management (OCM) that register clusters
// and install add-ons. OCM's own commands also link its webhooks, which do not compile with
// controller-runtime 0.24.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/openshift/library-go/pkg/controller/controllercmd"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"open-cluster-management.io/api/feature"
	"open-cluster-management.io/ocm/pkg/addon"
	"open-cluster-management.io/ocm/pkg/common/options"
	"open-cluster-management.io/ocm/pkg/features"
	registrationhub "open-cluster-management.io/ocm/pkg/registration/hub"
	registration "open-cluster-management.io/ocm/pkg/registration/spoke"
	singleton "open-cluster-management.io/ocm/pkg/singleton/spoke"
	work "open-cluster-management.io/ocm/pkg/work/spoke"
)

// flags are no part of flag.CommandLine, in which controller-runtime defines a kubeconfig.
var (
	flags      = flag.NewFlagSet("ocm", flag.ExitOnError)
	kubeconfig = flags.String("kubeconfig", "", "kubeconfig of the cluster: the hub's, or the worker's for agent")
	approved   = flags.String("auto-approved-users", "", "registration: comma-separated users whose clusters are accepted")
	cluster    = flags.String("cluster", "", "agent: name of the ManagedCluster")
	bootstrap  = flags.String("bootstrap-kubeconfig", "", "agent: kubeconfig of the hub for the first request of a certificate")
	dir        = flags.String("hub-kubeconfig-dir", "", "agent: folder for the certificate and the kubeconfig that the hub accepts")
)

// commands are the controllers by the name of their command. Each runs until ctx ends.
var commands = map[string]func(context.Context, *controllercmd.ControllerContext) error{
	"registration": runRegistration,
	"addon":        addon.RunManager,
	"agent":        runAgent,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: ocm registration|addon|agent [flags]")
		os.Exit(2)
	}
	_ = flags.Parse(os.Args[2:]) // exits on an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, commands[os.Args[1]]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "ocm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command func(context.Context, *controllercmd.ControllerContext) error) error {
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = options.NewOptions().QPS, options.NewOptions().Burst
	return command(ctx, &controllercmd.ControllerContext{KubeConfig: config, ProtoKubeConfig: rest.CopyConfig(config)})
}

// runRegistration accepts clusters and their certificates, and watches their leases.
func runRegistration(ctx context.Context, c *controllercmd.ControllerContext) error {
	gates := features.HubMutableFeatureGate
	if err := errors.Join(gates.Add(feature.DefaultHubRegistrationFeatureGates), gates.Set(string(feature.ManagedClusterAutoApproval)+"=true")); err != nil {
		return err
	}
	manager := registrationhub.NewHubManagerOptions()
	manager.AutoApprovedCSRUsers = strings.Split(*approved, ",")
	return manager.RunControllerManager(ctx, c)
}

// runAgent runs the registration agent and the work agent in one process, as OCM's
// klusterlet does in its singleton mode.
func runAgent(ctx context.Context, c *controllercmd.ControllerContext) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gates := features.SpokeMutableFeatureGate
	if err := errors.Join(gates.Add(feature.DefaultSpokeRegistrationFeatureGates), gates.Add(feature.DefaultSpokeWorkFeatureGates)); err != nil {
		return err
	}
	agent := options.NewAgentOptions()
	agent.SpokeClusterName, agent.HubKubeconfigDir = *cluster, *dir
	registrationOptions := registration.NewSpokeAgentOptions()
	registrationOptions.BootstrapKubeconfig = *bootstrap
	workOptions := work.NewWorkloadAgentOptions()
	workOptions.WorkloadSourceConfig = filepath.Join(*dir, "kubeconfig")
	return singleton.NewAgentConfig(agent, registrationOptions, workOptions, cancel).RunSpokeAgent(ctx, c)
}
